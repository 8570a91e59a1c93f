"""Expiry of ended runs: their objects are removed, a record that owns nothing and what is in storage stay.

The record of a run owns its objects, so the cluster removes them with it, shared code only with its last owner. First a
copy of the record is made, which owns nothing: whoever dies in between leaves both, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from longboat.core.errors import EngineError, NotFound
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.creation import find_templates
from longboat.engines.kubernetes.manifests.objects import record_object
from longboat.engines.kubernetes.observe.observe import observe
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.record_store import BadRecord, is_expired_record, read_record, seconds_of
from longboat.engines.kubernetes.records import Record, State
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists
from longboat.kubeapi.kinds import CONFIG_MAP


def due_at(annotations: Mapping[str, str], state: State) -> float | None:
    """When the objects of a run go; None: not by themselves. Pure."""
    keep_s = seconds_of(annotations.get(names.KEEP, ""))
    return None if keep_s is None or not state.is_final or state.ended is None else state.ended + keep_s


def is_due(snapshot: RunSnapshot, now: float, *, has_template: bool = False) -> bool:
    """Whether the controller removes the objects of a run. Pure.

    Anybody who may write ConfigMaps can write a record that says that its run ended long ago. So something of a run
    must be there that only those make who may create Jobs, a workload or a retry template that the record owns, and
    none of its pods may go on, whatever the record says.
    """
    state = snapshot.state
    if snapshot.keep_s is None or state.ended is None or not state.is_final or snapshot.is_deleting:
        return False
    is_over = (bool(snapshot.workloads) or has_template) and all(pod.end is not None for pod in snapshot.pods)
    return is_over and now >= state.ended + snapshot.keep_s


def expire_if_due(client: Client, run: str, look_s: float) -> float | None:
    """Called by the controller: when to check again, at most `look_s` later; None: it expires now, or is gone."""
    now = client.now()
    try:
        snapshot = observe(client, run, now)
    except NotFound:
        return None
    # Workloads of a run that never started are deleted at its end; its template stays.
    has_template = not snapshot.workloads and bool(find_templates(client, snapshot.record, snapshot.uid))
    if not is_due(snapshot, now, has_template=has_template):
        return now + look_s
    expire(client, snapshot)
    return None


def expire(client: Client, snapshot: RunSnapshot) -> None:
    """Have the objects of an ended run removed; returns before they are gone. Raises EngineError."""
    record = snapshot.record
    if not snapshot.state.is_final:
        raise EngineError(f"{record.name} has not ended, as far as its record says: its objects stay")
    tails = snapshot.state.tails if record.storage is None else {}
    state = msgspec.structs.replace(snapshot.state, expired=client.now(), tails=tails)
    body = record_object(record, state)
    body["metadata"]["name"] = names.expired_name(record.name)
    body["metadata"]["labels"] |= {names.KIND: names.EXPIRED_RUN, names.ENDED: "true"}
    whole = client.find(CONFIG_MAP, record.name)  # lists leave the names of owners out
    if whole is not None and whole["metadata"].get("uid") == snapshot.uid:
        body["metadata"]["ownerReferences"] = whole["metadata"].get("ownerReferences") or []  # a trial's is its sweep
    try:
        client.create(body)
    except AlreadyExists:
        if _make_way(client, record):
            client.create(body)
    client.delete(CONFIG_MAP, record.name, uid=snapshot.uid)


def _make_way(client: Client, record: Record) -> bool:
    """Whether the copy can be made now; False: it is there, of this very run.

    That of an earlier run of this name, which somebody removed and made anew, is deleted: the later one is what is
    asked for. Anything else is not ours and stays: EngineError.
    """
    name = names.expired_name(record.name)
    body = client.find(CONFIG_MAP, name)
    if body is None:
        return True
    try:
        left = read_record(body)[0] if is_expired_record(body) else None
    except BadRecord:
        left = None
    if left is None:
        raise EngineError(
            f"the ConfigMap {name} is none that Longboat made of an ended run: the objects of {record.name} stay",
            hint=f"if nobody needs it: kubectl delete configmap {name}",
        )
    if left.uid == record.uid:
        return False
    client.delete(CONFIG_MAP, name, uid=str(body["metadata"]["uid"]))
    return True
