"""What is to be done for one add-on, of what it should be and what is there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from longboat.clusters.addons.addon import AddonManifest, Object, ObjectKey, addon_of, object_key, shown
from longboat.core.words import counted, listing
from longboat.kubeapi.kinds import CRD, NAMESPACE, PVC, VOLUME

_PER_WRITE = ("managedFields", "resourceVersion", "generation")
"""Metadata that a write changes although nothing else does."""

NEVER_PRUNED = (CRD.kind, NAMESPACE.kind, VOLUME.kind, PVC.kind)
"""With one of these all goes that users put into it; only `down` removes it, and looks for that first."""

AddonState = Literal["omitted", "foreign", "same", "install", "change"]


@dataclass(frozen=True)
class AddonPlan:
    """What `up` would do for one add-on."""

    manifest: AddonManifest
    state: AddonState
    apply: Sequence[Object] = ()
    """New ones and those that differ, in order."""
    prune: Sequence[Object] = ()
    """What an earlier `up` made for it and is wanted no more."""
    left: Sequence[ObjectKey] = ()
    """Wanted no more either, but what is in it may be a user's."""
    reason: str = ""

    @property
    def line(self) -> str:
        """In words, for `--dry-run` and the summary."""
        manifest = self.manifest
        name = f"{manifest.name} {manifest.version}".rstrip()
        if self.state in ("omitted", "foreign"):
            return f"{manifest.name}: {self.reason}"
        if self.state == "same":
            return f"{name}: nothing to do{self.left_text}"
        if self.state == "install":
            return f"{name}: install, {counted(len(self.apply), 'object')}{self.left_text}"
        parts = [f"{counted(len(self.apply), 'object')} to apply"] if self.apply else []
        parts += [f"{counted(len(self.prune), 'object')} to remove"] if self.prune else []
        return f"{name}: change, {', '.join(parts)}{self.left_text}"

    @property
    def left_text(self) -> str:
        """What is left although it is wanted no more, to be put after a line; empty: nothing."""
        return f"; left, though wanted no more: {listing([shown(key) for key in self.left], 3)}" if self.left else ""


def decide(
    manifest: AddonManifest,
    present: Mapping[ObjectKey, Object],
    applied: Mapping[ObjectKey, Object],
    labelled: Sequence[Object] = (),
) -> AddonPlan:
    """`present`: objects of these names as they are; `applied`: as they would be after an apply, of those present;
    `labelled`: all objects with the label of this add-on.

    An object without our label is somebody else's, and then the whole add-on is: two halves do not work together. But
    a namespace may be anybody's.
    """
    if manifest.omitted:
        return AddonPlan(manifest, "omitted", reason=manifest.omitted)
    foreign = [key for key, body in present.items() if key[0] != "Namespace" and not addon_of(body)]
    if foreign:
        return AddonPlan(manifest, "foreign", reason=_foreign_reason(manifest, foreign, present))
    wanted = {object_key(body): body for body in manifest.objects}
    kept = [key for key in wanted if not (key[0] == "Namespace" and key in present and not addon_of(present[key]))]
    apply = [wanted[key] for key in kept if key not in present or is_changed(present[key], applied[key])]
    unwanted = [body for body in labelled if object_key(body) not in wanted]
    prune = [body for body in unwanted if body["kind"] not in NEVER_PRUNED]
    left = [object_key(body) for body in unwanted if body["kind"] in NEVER_PRUNED]
    if not apply and not prune:
        return AddonPlan(manifest, "same", left=left)
    state: AddonState = "change" if any(key[0] != "Namespace" for key in present) else "install"
    return AddonPlan(manifest, state, apply=apply, prune=prune, left=left)


def is_changed(before: Object, after: Object) -> bool:
    return _essence(before) != _essence(after)


def _essence(body: Object) -> Object:
    meta = {key: value for key, value in body["metadata"].items() if key not in _PER_WRITE}
    return {**body, "metadata": meta, "status": None}


def _foreign_reason(
    manifest: AddonManifest, foreign: Sequence[ObjectKey], present: Mapping[ObjectKey, Object]
) -> str:  # fmt: skip
    version = installed_version([present[key] for key in foreign])
    if not version:
        there = f"is there already ({listing([shown(key) for key in foreign], 1)})"
    elif version == manifest.version:
        there = f"{version} is there already"
    else:
        there = f"{version} is there already, {manifest.version} is what Longboat is tested with"
    return f"{there}; not made by up, left alone"


def installed_version(objects: Sequence[Object]) -> str:
    """The version that the tag of a workload's image tells; empty: it tells none."""
    for body in objects:
        if body["kind"] in ("Deployment", "DaemonSet"):
            for container in body["spec"]["template"]["spec"]["containers"]:
                tag = str(container.get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[2]
                if tag[:1] == "v" and tag[1:2].isdecimal():
                    return tag[1:]
    return ""
