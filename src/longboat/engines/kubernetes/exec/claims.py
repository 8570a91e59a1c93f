"""PersistentVolumeClaims of the namespace: list with the pods that use them, create, remove.

What a claim is good for is measured by `disk_benchmark`.
Longboat removes no claim by itself: they outlive runs, and so does what is in them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.core.errors import EngineError, NotFound, Refused, UsageError
from longboat.core.jobs import Value
from longboat.core.resources import parse_quantity
from longboat.engines.kubernetes.exec.helper_pod import claims_of
from longboat.engines.kubernetes.manifests.volumes import claim_object
from longboat.engines.kubernetes.record_store import list_records
from longboat.engines.kubernetes.records import Record
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, ApiError
from longboat.kubeapi.kinds import EVENT, POD, PVC, STORAGE_CLASS
from longboat.specs.fields import rules

ACCESS = {
    "RWO": "ReadWriteOnce",
    "RWX": "ReadWriteMany",
    "ROX": "ReadOnlyMany",
    "RWOP": "ReadWriteOncePod",
}
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
LATE = "WaitForFirstConsumer"
ENDED = ("Succeeded", "Failed")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0  # most claims are bound at the first looks; a cloud's take seconds
PATIENCE_S = 5.0
"""A provisioner that fails tries again; so long it may succeed after all."""
REMOVED_S = 60.0  # a cloud takes some seconds to delete a disk


class VolumeView(Value, frozen=True):
    name: str
    phase: str  # Bound, Pending, Lost, Terminating
    size: str  # what it has, or what was asked for
    access: tuple[str, ...] = ()  # RWO, RWX, ...
    storage_class: str | None = None
    created: float | None = None
    pods: tuple[str, ...] = ()  # that mount it now
    runs: tuple[str, ...] = ()  # that have not ended and name it
    note: str = ""  # why it is not bound


class ClaimRequest(Value, frozen=True):
    """A claim to be made."""

    name: str
    size: int  # bytes
    access: str = "ReadWriteOnce"
    storage_class: str | None = None  # None: the cluster's default


def wanted(name: str, size: str, *, access: str = "RWO", storage_class: str | None = None) -> ClaimRequest:
    """Checked. Raises UsageError."""
    for field, text in (("name", name), ("class", storage_class)):
        if text is not None and not re.fullmatch(rules.SUBDOMAIN, text):
            raise UsageError(f"{text!r} is not the {field} of a volume", hint=f"expected {rules.SUBDOMAIN_EXPECTED}")
    try:
        count = parse_quantity(size)
    except ValueError as error:
        raise UsageError(f"size {size!r}: expected {error}") from None
    if count <= 0:
        raise UsageError("a volume needs a size", hint="--size 100Gi")
    mode = ACCESS.get(access.upper(), access)
    if mode not in ACCESS.values():
        modes = ", ".join(f"{short} ({full})" for short, full in ACCESS.items())
        raise UsageError(f"access {access!r}: expected one of {modes}")
    return ClaimRequest(name=name, size=count, access=mode, storage_class=storage_class)


def view_of(claim: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], runs: Sequence[Record]) -> VolumeView:
    """One claim as users see it. `runs`: those that have not ended."""
    from longboat.core.times import parse_time

    meta, spec, status = claim["metadata"], claim.get("spec") or {}, claim.get("status") or {}
    name = str(meta["name"])
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "")
    shorts = {full: short for short, full in ACCESS.items()}
    return VolumeView(
        name=name,
        phase="Terminating" if "deletionTimestamp" in meta else str(status.get("phase") or "Pending"),
        size=str((status.get("capacity") or {}).get("storage") or asked),
        access=tuple(shorts.get(mode, mode) for mode in status.get("accessModes") or spec.get("accessModes") or ()),
        storage_class=spec.get("storageClassName") or None,
        created=parse_time(meta.get("creationTimestamp")),
        pods=tuple(sorted(pod["metadata"]["name"] for pod in pods if name in claims_of(pod) and not _has_ended(pod))),
        runs=tuple(sorted(record.name for record in runs if name in claims_of_run(record))),
    )


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def claims_of_run(record: Record) -> set[str]:
    """The claims that a run's pods mount."""
    claims = {volume.claim for volume in record.job.volumes if volume.claim}
    if record.storage is not None and record.storage.claim:
        claims.add(record.storage.claim)
    return claims


def list_volumes(client: Client) -> list[VolumeView]:
    """All claims of the namespace, by name."""
    claims = client.list(PVC).items
    pods, runs = _users(client)
    return sorted((view_of(claim, pods, runs) for claim in claims), key=lambda view: view.name)


def find_volume(client: Client, name: str) -> VolumeView:
    """One claim. Raises NotFound."""
    claim = client.find(PVC, name) if re.fullmatch(rules.SUBDOMAIN, name) else None
    if claim is None:
        raise NotFound(f"no volume named {name!r} in namespace {client.namespace}", hint="`longboat volume ls`")
    return view_of(claim, *_users(client))


def _users(client: Client) -> tuple[list[dict[str, Any]], list[Record]]:
    pods = client.list(POD).items
    return pods, [record for _, record, state in list_records(client) if not state.is_final]


def create_volume(client: Client, claim: ClaimRequest, *, timeout_s: float) -> VolumeView:
    """Make the claim and wait until it is bound, or is known to wait for its first user. Raises EngineError."""
    binding = _binding(client, claim)
    body = claim_object(
        claim.name, client.namespace, size=claim.size, storage_class=claim.storage_class, access=claim.access
    )
    try:
        client.create(body)
    except AlreadyExists:
        raise Refused(f"there is a volume {claim.name} already", hint=f"longboat volume rm {claim.name}") from None
    return until_bound(client, claim, binding, timeout_s)


def _binding(client: Client, claim: ClaimRequest) -> str | None:
    """How its class binds; None where that cannot be known. Raises Refused for a class that is not there."""
    try:
        classes = client.list(STORAGE_CLASS).items
    except ApiError:
        return None
    known = {str(storage_class["metadata"]["name"]): storage_class for storage_class in classes}
    chosen = claim.storage_class
    if chosen is None:
        marked = [
            name
            for name, storage_class in known.items()
            if (storage_class["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
        ]
        chosen = marked[0] if marked else None
    elif chosen not in known:
        there = ", ".join(sorted(known)) or "none"
        # A class of that name may still be written on a volume that somebody made by hand.
        if not any(volume.get("spec", {}).get("storageClassName") == chosen for volume in _volumes(client)):
            raise Refused(f"the cluster has no storage class {chosen!r}", hint=f"classes: {there}")
    return str(known[chosen].get("volumeBindingMode") or "Immediate") if chosen in known else None


def _volumes(client: Client) -> list[dict[str, Any]]:
    from longboat.kubeapi.kinds import VOLUME

    try:
        return client.list(VOLUME).items
    except ApiError:
        return []


def until_bound(client: Client, claim: ClaimRequest, binding: str | None, timeout_s: float) -> VolumeView:
    """Wait for it. `binding`: how its class binds. Raises EngineError."""
    began = time.monotonic()
    pause = FIRST_PAUSE_S
    while True:
        view = view_of(client.get(PVC, claim.name), (), ())
        if view.phase == "Bound":
            return view
        messages = _event_messages(client, claim.name)
        waited = time.monotonic() - began
        if binding == LATE or "WaitForFirstConsumer" in messages:
            return _with_note(view, "it is bound when a pod first uses it")
        failed = messages.get("ProvisioningFailed") or messages.get("FailedBinding")
        if waited > timeout_s or ("ProvisioningFailed" in messages and waited > PATIENCE_S):
            reason = failed or next(iter(messages.values()), "nothing provides it")
            raise EngineError(
                f"the volume {claim.name} is not bound after {waited:.0f} s: {reason}",
                hint=f"it stays and may still be bound; `longboat volume rm {claim.name}` removes it",
            )
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def _with_note(view: VolumeView, note: str) -> VolumeView:
    import msgspec

    return msgspec.structs.replace(view, note=note)


def _event_messages(client: Client, name: str) -> dict[str, str]:
    """What events say about a claim: reason -> message."""
    fields = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={name}"
    try:
        events = client.list(EVENT, fields=fields).items
    except ApiError:
        return {}
    return {str(event.get("reason")): str(event.get("message") or "").strip() for event in events}


def remove_volume(client: Client, name: str) -> None:
    """Remove a claim that nobody uses, and with it, unless its class retains them, its contents. Raises Refused."""
    view = find_volume(client, name)
    if view.pods or view.runs:
        users = [*(f"run {run}" for run in view.runs), *(f"pod {pod}" for pod in view.pods)]
        raise Refused(
            f"the volume {name} is used by {', '.join(users[:8])}{', ...' if len(users) > 8 else ''}",
            hint="stop them first",
        )
    client.delete(PVC, name)
    deadline = time.monotonic() + REMOVED_S
    pause = FIRST_PAUSE_S
    while client.find(PVC, name) is not None:
        if time.monotonic() > deadline:
            raise EngineError(
                f"the volume {name} is being removed, but after {REMOVED_S:.0f} s it is still there",
                hint="the cluster waits for whoever still uses it",
            )
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)
