"""Checks of claims and storage classes, and of a claim that was bound and written. Pure."""

from __future__ import annotations

from longboat.core.words import listing
from longboat.doctor.facts import CLAIMS, CLUSTER, STORAGE_PROBE, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning

_SHOWN = 3  # names: a finding is one line


def classes(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    if facts.storage_classes is None:
        return skipped("no right to list storageclasses.storage.k8s.io")
    defaults = [storage_class.name for storage_class in facts.storage_classes if storage_class.is_default]
    names = ", ".join(storage_class.name for storage_class in facts.storage_classes) or "none"
    if not defaults:
        hint = "claims must name a class, or be made by hand; checkpoints need a claim, NFS or a folder of the nodes"
        return warning(f"no default storage class (classes: {names})", hint)
    if len(defaults) > 1:
        hint = "kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class-, of all but one"
        return warning(f"several default storage classes: {', '.join(defaults)}", hint)
    return ok(f"default storage class {defaults[0]} (classes: {names})")


def claims(seen: Seen) -> Judgement:
    phases = {str(claim["metadata"]["name"]): str((claim.get("status") or {}).get("phase")) for claim in seen[CLAIMS]}
    lost = [name for name, phase in phases.items() if phase == "Lost"]
    pending = [name for name, phase in phases.items() if phase == "Pending"]
    if lost:
        hint = "its volume was deleted: `longboat volume rm`, then make it anew; what was in it is gone"
        return broken(f"claims without their volume: {listing(lost, _SHOWN)}", hint)
    if pending:
        hint = f"kubectl describe pvc {pending[0]}; some classes wait for the first pod, which is fine"
        return warning(f"claims that are not bound: {listing(pending, _SHOWN)}", hint)
    return ok(f"{len(phases)} claims of the namespace, all bound" if phases else "none in the namespace")


def written(seen: Seen) -> Judgement:
    """A claim was made, bound, mounted and written; or the storage of the settings was."""
    probe = seen[STORAGE_PROBE]
    if probe.skipped:
        return skipped(probe.skipped, probe.hint)
    if probe.problem:
        hint = "kubectl get events; is the provisioner running? `longboat volume create` tries another class"
        return broken(f"{probe.title}: {probe.problem}", probe.hint or hint)
    if not probe.title:
        return skipped("the pod with a claim said nothing")
    return ok(f"{probe.title}: bound, written and read back in {probe.took_s:.1f} s")


CHECKS = (
    Check("storage classes", "storage", "there is one default storage class", classes),
    Check("claims", "storage", "claims of the namespace are bound", claims),
    Check("claim", "storage", "a claim is made, bound, mounted by a pod and written", written),
)
