"""What of add-ons is in a cluster: objects by name and by label, how they would look after an apply, and whether what
they deployed works.
"""

from __future__ import annotations

from collections.abc import Iterable

from longboat.clusters.addons import storage
from longboat.clusters.addons.addon import AddonManifest, Object, ObjectKey, addon_of, object_key
from longboat.clusters.addons.decide import AddonPlan, decide, installed_version
from longboat.clusters.addons.manifest_files import REMOVABLE
from longboat.clusters.spec import ADDON_LABEL
from longboat.core.jobs import Value
from longboat.engines.kubernetes.install.install import is_rolled_out, why_not_ready
from longboat.engines.kubernetes.names import SYSTEM, selector
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ObjectNotFound
from longboat.kubeapi.kinds import DAEMON_SET, DEPLOYMENT, NAMESPACE, kind_of

WORKLOADS = (DEPLOYMENT.kind, DAEMON_SET.kind)
CONDITIONS = {"CustomResourceDefinition": "Established", "APIService": "Available"}


def plan_addon(client: Client, manifest: AddonManifest) -> AddonPlan:
    """The plan for one add-on; the cluster is only looked at."""
    present: dict[ObjectKey, Object] = {}
    applied: dict[ObjectKey, Object] = {}
    for body in manifest.objects:
        stored = client.find(kind_of(body), body["metadata"]["name"], namespace=body["metadata"].get("namespace"))
        if stored is not None:
            present[object_key(body)] = stored
            applied[object_key(body)] = client.apply(body, dry_run=True) if addon_of(stored) else stored
    labelled = labelled_objects(client, manifest.name) if any(map(addon_of, present.values())) else []
    return decide(manifest, present, applied, labelled)


def labelled_objects(client: Client, addon: str = "") -> list[Object]:
    """Everything that `up` made for this add-on, or for all of them, in the order of removal. A kind that the
    cluster does not know has none.

    Anybody may put our label on objects of his own namespace: those are not taken for ours.
    """
    chosen = f"{ADDON_LABEL}={addon}" if addon else ADDON_LABEL
    objects = []
    for kind in REMOVABLE:
        try:
            items = client.list(kind, everywhere=True, labels=chosen).items
        except ObjectNotFound:
            continue
        objects += [{**body, "apiVersion": kind.api_version, "kind": kind.kind} for body in items]
    spaces = addon_spaces(objects)
    return [body for body in objects if not kind_of(body).is_namespaced or body["metadata"]["namespace"] in spaces]


_SPACES = frozenset({"kube-system", SYSTEM, storage.NAME, "jobset-system", "kueue-system"})
"""Namespaces of add-ons, as they come."""


def addon_spaces(objects: Iterable[Object]) -> set[str]:
    """Namespaces that add-ons use, also with manifests of the user's. Cluster-wide objects tell them, which only
    administrators make: namespaces themselves, and what leads to accounts or services in one. Pure.
    """
    spaces = set(_SPACES)
    for body in objects:
        if body["kind"] == NAMESPACE.kind:
            spaces.add(body["metadata"]["name"])
        elif not kind_of(body).is_namespaced:
            services = [(each.get("clientConfig") or {}).get("service") or {} for each in body.get("webhooks") or ()]
            services.append((body.get("spec") or {}).get("service") or {})
            spaces |= {str(each.get("namespace")) for each in (*services, *(body.get("subjects") or ()))}
    return spaces


def lacking(client: Client, manifest: AddonManifest) -> str:
    """What keeps the add-on from working; empty: it works."""
    for body in manifest.objects:
        kind, meta = kind_of(body), body["metadata"]
        if kind.kind not in (*WORKLOADS, *CONDITIONS):
            continue
        present = client.find(kind, meta["name"], namespace=meta.get("namespace"))
        if present is None:
            return f"{kind.kind} {meta['name']} is gone"
        if reason := object_fault(client, present):
            return reason
    return manifest.check(client) if manifest.check else ""


class AddonStatus(Value, frozen=True):
    """One add-on that `up` installed, as it is now."""

    addon: str
    version: str
    state: str
    """`ready`, or what keeps it from working."""


def addon_statuses(client: Client) -> list[AddonStatus]:
    """Of everything with our label; no manifest is needed."""
    by_addon: dict[str, list[Object]] = {}
    for body in labelled_objects(client):
        by_addon.setdefault(addon_of(body), []).append(body)
    return [
        AddonStatus(
            addon=name,
            version=installed_version(objects) or next(filter(None, map(_own_version, objects)), ""),
            state=next((reason for body in objects if (reason := object_fault(client, body))), "ready"),
        )
        for name, objects in sorted(by_addon.items())
    ]


def _own_version(body: Object) -> str:
    return str(body["metadata"]["labels"].get("app.kubernetes.io/version", ""))


def object_fault(client: Client, body: Object) -> str:
    """Why a workload, a definition or an API service does not work; empty: it does, or it only is there."""
    reason = ""
    if body["kind"] in CONDITIONS:
        reason = condition_fault(body, CONDITIONS[body["kind"]])
    elif body["kind"] in WORKLOADS:
        reason = _workload_fault(client, body)
    return f"{body['kind']} {body['metadata']['name']}: {reason}" if reason else ""


def condition_fault(body: Object, wanted: str) -> str:
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition["type"] == wanted:
            reason = condition.get("message") or condition.get("reason") or ""
            return "" if condition["status"] == "True" else f"not {wanted}: {reason}"
    return f"not {wanted}"


def _workload_fault(client: Client, body: Object) -> str:
    is_ready = is_rolled_out(body) if body["kind"] == DEPLOYMENT.kind else is_spread(body)
    if is_ready:
        return ""
    return why_not_ready(client, body["metadata"]["namespace"], pod_labels(body))


def pod_labels(workload: Object) -> str:
    """The selector of a workload's pods; empty: it chooses them by expressions, as no add-on does."""
    return selector(list((workload["spec"]["selector"].get("matchLabels") or {}).items()))


def is_spread(daemon_set: Object) -> bool:
    """A pod of the present revision is available on every node that should have one. On no node is right too."""
    status = daemon_set.get("status") or {}
    wanted = status.get("desiredNumberScheduled", 0)
    is_seen = status.get("observedGeneration") == daemon_set["metadata"].get("generation")
    numbers = [status.get(key) or 0 for key in ("updatedNumberScheduled", "numberAvailable")]
    return bool(is_seen and min(numbers) >= wanted)
