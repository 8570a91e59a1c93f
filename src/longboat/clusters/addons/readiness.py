"""Whether what an add-on deployed works: rollouts, definitions that are served, API services that answer."""

from __future__ import annotations

from longboat.clusters.addons.addon import AddonManifest, Object
from longboat.engines.kubernetes.install.install import is_rolled_out, why_not_ready
from longboat.engines.kubernetes.names import selector
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import kind_of

CONDITIONS = {"CustomResourceDefinition": "Established", "APIService": "Available"}


def lacking(client: Client, manifest: AddonManifest) -> str:
    """What keeps the add-on from working; empty: it works."""
    for body in manifest.objects:
        kind, meta = kind_of(body), body["metadata"]
        if kind.kind not in ("Deployment", "DaemonSet", *CONDITIONS):
            continue
        present = client.find(kind, meta["name"], namespace=meta.get("namespace"))
        if present is None:
            return f"{kind.kind} {meta['name']} is gone"
        if kind.kind in CONDITIONS:
            reason = condition_fault(present, CONDITIONS[kind.kind])
        else:
            reason = _workload_fault(client, present)
        if reason:
            return f"{kind.kind} {meta['name']}: {reason}"
    return manifest.check(client) if manifest.check else ""


def condition_fault(body: Object, wanted: str) -> str:
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition["type"] == wanted:
            told = condition.get("message") or condition.get("reason") or ""
            return "" if condition["status"] == "True" else f"not {wanted}: {told}"
    return f"not {wanted}"


def _workload_fault(client: Client, body: Object) -> str:
    is_ready = is_rolled_out(body) if body["kind"] == "Deployment" else is_spread(body)
    if is_ready:
        return ""
    labels = selector(list(body["spec"]["selector"]["matchLabels"].items()))
    return why_not_ready(client, body["metadata"]["namespace"], labels)


def is_spread(daemon_set: Object) -> bool:
    """A pod of the present revision is available on every node that should have one. On no node is right too."""
    status = daemon_set.get("status") or {}
    wanted = status.get("desiredNumberScheduled", 0)
    is_seen = status.get("observedGeneration") == daemon_set["metadata"].get("generation")
    numbers = [status.get(key) or 0 for key in ("updatedNumberScheduled", "numberAvailable")]
    return bool(is_seen and min(numbers) >= wanted)
