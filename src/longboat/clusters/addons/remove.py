"""Removes add-ons from a cluster: what carries our label, and nothing else. What users made with them stays, and is
said: objects of their kinds with the definitions, volumes with their claims; unless it is to be purged.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from longboat.clusters.addons.addon import Object, addon_of, object_key, shown
from longboat.clusters.addons.observe import WORKLOADS, condition_fault, labelled_objects, pod_labels
from longboat.clusters.provisioner.volumes import LABELS as VOLUME_LABELS
from longboat.clusters.provisioner.volumes import hostnames
from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.core.words import counted, listing
from longboat.engines.kubernetes.install.install import lift_cordons, release_gates
from longboat.engines.kubernetes.names import SYSTEM, selector
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ObjectNotFound
from longboat.kubeapi.kinds import (
    CONFIG_MAP,
    CRD,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    JOBSET,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    POD,
    PVC,
    SECRET,
    STATEFUL_SET,
    VOLUME,
    Kind,
    kind_of,
)

GONE_S = 120.0  # pods have 30 s of grace, a namespace goes after its last pod, and nodes may be slow
_LOOK_S = 0.2  # one request; most objects are gone at the second look
MOST_SHOWN = 20  # of volumes: more are a matter for kubectl get pv

Say = Callable[[str], None]


@dataclass(frozen=True)
class UserData:
    """What users made with the add-ons."""

    custom: Mapping[str, tuple[Kind, Sequence[Object]]] = field(default_factory=dict)
    """Definition to its kind and objects, of definitions that are ours and have some."""
    volumes: Sequence[Object] = ()


class Removal(Value, frozen=True):
    """What became of the add-ons of a cluster."""

    count: int
    """Of the objects that were removed."""
    purged: tuple[str, ...] = ()
    """Names of the volumes that were to be purged: folders of these names may be deleted, and no others."""


def remove_addons(client: Client, say: Say, *, purge: bool, ends_cluster: bool = False) -> Removal:
    """All of them. `purge`: data of users too. `ends_cluster`: the cluster goes next, and takes all with it but
    volumes.
    """
    objects = labelled_objects(client)
    data = user_data(client, [] if ends_cluster else objects)
    purged: tuple[str, ...] = ()
    if purge:
        is_served = any(addon_of(body) == "storage" and body["kind"] in WORKLOADS for body in objects)
        purged = purge_data(client, data, say, ends_cluster=ends_cluster, is_served=is_served)
        data = UserData()
    for line in kept_lines(data):
        say(f"longboat: {line}")
    kept = set(data.custom)
    removed = [body for body in objects if not (body["kind"] == CRD.kind and body["metadata"]["name"] in kept)]
    spaces = [body for body in removed if body["kind"] == NAMESPACE.kind]
    _delete(client, [body for body in removed if body["kind"] in _FIRST])
    _wait_for_pods(client, [body for body in removed if body["kind"] in WORKLOADS])
    _settle(client, {addon_of(body) for body in removed})
    _delete(client, [body for body in removed if body["kind"] not in (*_FIRST, NAMESPACE.kind)])
    free = [body for body in spaces if not _is_used(client, body, say)]
    _delete(client, free)
    if not ends_cluster:
        _wait_until_gone(client, [*(body for body in removed if body["kind"] == CRD.kind), *free])
    for name in dict.fromkeys(addon_of(body) for body in removed):
        say(f"longboat: {name}: removed")
    return Removal(count=len(removed) - len(spaces) + len(free), purged=purged)


_FIRST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService", *WORKLOADS)
"""Before the rest: webhooks and API services whose server is gone refuse requests; pods still need their rights."""


def custom_kind(definition: Object) -> Kind:
    """The kind that a definition defines, in the version it is stored in: no conversion is needed to list it."""
    spec = definition["spec"]
    version = next(each["name"] for each in spec["versions"] if each["storage"])
    names = spec["names"]
    return Kind(names["kind"], f"{spec['group']}/{version}", names["plural"], spec["scope"] == "Namespaced")


def user_data(client: Client, objects: Sequence[Object]) -> UserData:
    custom = {}
    for body in objects:
        if body["kind"] == CRD.kind:
            kind = custom_kind(body)
            items = client.list(kind, everywhere=True).items
            if items:
                custom[body["metadata"]["name"]] = (kind, items)
    volumes = client.list(VOLUME, labels=selector(list(VOLUME_LABELS.items()))).items
    return UserData(custom, volumes)


def kept_lines(data: UserData) -> list[str]:
    """What stays and why. Pure."""
    lines = [
        f"kept: {name} with {counted(len(items), 'object')} of users, {_named(items[0])} for one"
        for name, (_kind, items) in data.custom.items()
    ]
    lines += [f"kept: {volume_text(volume)}" for volume in data.volumes[:MOST_SHOWN]]
    if len(data.volumes) > MOST_SHOWN:
        lines.append(f"kept: {len(data.volumes) - MOST_SHOWN} more volumes")
    return [*lines, "--purge-data deletes what is kept"] if lines else []


def volume_text(volume: Object) -> str:
    """Whose it is and where: its folder may be all that is left of it."""
    spec = volume["spec"]
    claim = spec.get("claimRef") or {}
    owner = f"the volume of {claim['namespace']}/{claim['name']}" if claim else "a volume"
    path = (spec.get("local") or {}).get("path") or ":".join((spec.get("nfs") or {}).values())
    return f"{owner}, {path}" if path else owner


def _named(body: Object) -> str:
    meta = body["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def purge_data(
    client: Client, data: UserData, say: Say, *, ends_cluster: bool, is_served: bool
) -> tuple[str, ...]:  # fmt: skip
    """While the add-ons still run: their controllers take finalizers off, and the provisioner deletes folders;
    `is_served`: there is one. Returns the names of the volumes whose folders go: hosts of a cluster that ends delete
    what is left of them.
    """
    doomed = [volume for volume in data.volumes if not is_retained(volume)]
    if doomed and not is_served and not ends_cluster:
        raise EngineError(
            f"nobody is there to delete the folders of {counted(len(doomed), 'volume')}",
            hint="`longboat cluster up` with the add-on storage, then the same command again",
        )
    for kind, items in data.custom.values():
        for body in items:
            client.delete(kind, body["metadata"]["name"], namespace=body["metadata"].get("namespace"))
    for name, (kind, _items) in data.custom.items():
        _wait(functools.partial(_left, client, kind), f"objects of {name} are still there")
    for volume in data.volumes:
        if is_retained(volume):
            say(f"longboat: kept: {volume_text(volume)}: its reclaim policy is Retain")
    _purge_volumes(client, doomed if is_served else [], say, ends_pods=ends_cluster)
    return tuple(volume["metadata"]["name"] for volume in doomed)


def is_retained(volume: Object) -> bool:
    """Whether somebody chose that the volume stays, whatever becomes of its claim."""
    return bool(volume["spec"].get("persistentVolumeReclaimPolicy", "Delete") != "Delete")


def _purge_volumes(client: Client, volumes: Sequence[Object], say: Say, *, ends_pods: bool) -> None:
    """Delete their claims, and wait for the provisioner to delete them; not where its node is away."""
    for volume in volumes:
        if claim := _claim_of(client, volume):
            meta = claim["metadata"]
            if ends_pods:
                for pod in _users(client, meta["namespace"], meta["name"]):
                    client.delete(POD, pod, namespace=meta["namespace"])
            client.delete(PVC, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
    ready = ready_hosts(client.list(NODE).items) if volumes else set()
    away = [volume for volume in volumes if is_away(volume, ready)]
    for volume in away:
        say(f"longboat: kept: {volume_text(volume)}: its node {listing(hostnames(volume['spec']), 1)} does not answer")
    names = {volume["metadata"]["name"] for volume in volumes if volume not in away}
    labels = selector(list(VOLUME_LABELS.items()))

    def volumes_left() -> str:
        left = [each for each in client.list(VOLUME, labels=labels).items if each["metadata"]["name"] in names]
        return _holder(client, left[0]) if left else ""

    if names:
        _wait(volumes_left, "volumes are still there")


def _claim_of(client: Client, volume: Object) -> Object | None:
    """The claim that a volume was made for. Another claim may have its name by now, with other data."""
    reference = volume["spec"].get("claimRef") or {}
    claim = client.find(PVC, reference["name"], namespace=reference["namespace"]) if reference else None
    return claim if claim is not None and claim["metadata"]["uid"] == reference.get("uid") else None


def ready_hosts(nodes: Sequence[Object]) -> set[str]:
    """The labels by which volumes are bound to nodes, of nodes that answer."""
    return {
        (node["metadata"].get("labels") or {}).get("kubernetes.io/hostname", node["metadata"]["name"])
        for node in nodes
        if not condition_fault(node, "Ready")
    }


def is_away(volume: Object, ready: set[str]) -> bool:
    """Whether no node that answers has the volume's folder."""
    hosts = hostnames(volume["spec"])
    return bool(hosts) and not ready.intersection(hosts)


def _left(client: Client, kind: Kind) -> str:
    items = client.list(kind, everywhere=True).items
    return _named(items[0]) if items else ""


def _holder(client: Client, volume: Object) -> str:
    """What keeps a volume: the pod that uses its claim, if there is one."""
    claim = _claim_of(client, volume)
    namespace = claim["metadata"]["namespace"] if claim else ""
    pods = _users(client, namespace, claim["metadata"]["name"]) if claim else []
    used = f", used by the pod {namespace}/{pods[0]}" if pods else ""
    return f"{volume['metadata']['name']}{used}"


def _users(client: Client, namespace: str, claim: str) -> list[str]:
    """Names of the pods that mount a claim."""
    return [
        pod["metadata"]["name"]
        for pod in client.list(POD, namespace=namespace).items
        for volume in pod["spec"].get("volumes") or ()
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim
    ]


def _delete(client: Client, objects: Sequence[Object]) -> None:
    for body in objects:
        meta = body["metadata"]
        propagation = "Foreground" if body["kind"] in WORKLOADS else "Background"
        client.delete(
            kind_of(body), meta["name"], namespace=meta.get("namespace"), propagation=propagation, uid=meta["uid"]
        )


def _wait_for_pods(client: Client, workloads: Sequence[Object]) -> None:
    """They release their Leases while they still have the rights; a node that is away does not hold up the rest."""
    deadline = time.monotonic() + GONE_S
    for body in workloads:
        labels, namespace = pod_labels(body), body["metadata"]["namespace"]
        while labels and client.list(POD, namespace=namespace, labels=labels).items and time.monotonic() < deadline:
            time.sleep(_LOOK_S)


def _settle(client: Client, addons: set[str]) -> None:
    """What pods of ours leave behind outside of their objects."""
    if "autoscaler" in addons:
        lift_cordons(client)
    if "controller" in addons:
        release_gates(client)


_USER_KINDS = (
    DEPLOYMENT,
    DAEMON_SET,
    STATEFUL_SET,
    CRON_JOB,
    JOB,
    JOBSET,
    POD,
    PVC,
    CONFIG_MAP,
    SECRET,
    LOCAL_QUEUE,
)
_PUBLISHED = ("kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert")
"""ConfigMaps that clusters put into every namespace."""


def _is_used(client: Client, space: Object, say: Say) -> bool:
    """Whether somebody else has workloads or data in a namespace that we made."""
    name = space["metadata"]["name"]
    for kind in _USER_KINDS:
        try:
            items = client.list(kind, namespace=name).items
        except ObjectNotFound:  # a kind that the cluster does not know
            continue
        for body in items:
            if not is_addons_own(kind, body):
                held = shown((kind.kind, name, body["metadata"]["name"]))
                say(f"longboat: namespace {name} is kept: {held} is there, which up did not make")
                return True
    return False


def is_addons_own(kind: Kind, body: Object) -> bool:
    """Whether an object in a namespace of ours goes with it: it was made by `up`, by an add-on, or by the cluster
    itself, or it is going already. Pure.
    """
    meta = body["metadata"]
    if addon_of(body) or meta.get("deletionTimestamp"):
        return True
    if kind == SECRET:
        return bool(body.get("type") == "kubernetes.io/service-account-token")
    is_memory = meta["namespace"] == SYSTEM and meta["name"].startswith("longboat-")  # of the autoscaler
    return kind == CONFIG_MAP and (meta["name"] in _PUBLISHED or is_memory)


def _wait_until_gone(client: Client, objects: Sequence[Object]) -> None:
    for body in objects:
        kind, name = kind_of(body), body["metadata"]["name"]

        def left(kind: Kind = kind, name: str = name, uid: str = body["metadata"]["uid"]) -> str:
            present = client.find(kind, name)
            return "" if present is None or present["metadata"]["uid"] != uid else "is still there"

        _wait(left, shown(object_key(body)))


def _wait(left: Callable[[], str], subject: str) -> None:
    deadline = time.monotonic() + GONE_S
    while remaining := left():
        if time.monotonic() > deadline:
            hint = "the same command again goes on from there"
            raise EngineError(f"{subject} after {GONE_S:g} s: {remaining}", hint=hint)
        time.sleep(_LOOK_S)
