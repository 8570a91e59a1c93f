"""Expiry of ended runs: their objects are removed, a record that owns nothing and what is in storage stay.

The record of a run owns its objects, so the cluster removes them with it, shared code only with its last owner. First a
copy of the record is made, which owns nothing: whoever dies in between leaves both, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from longboat.core.errors import NotFound
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests.objects import record_object
from longboat.engines.kubernetes.observe.observe import observe
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.record_store import BadRecord, read_record, seconds_of
from longboat.engines.kubernetes.records import Record, State
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists
from longboat.kubeapi.kinds import CONFIG_MAP


def due_at(annotations: Mapping[str, str], state: State) -> float | None:
    """When the objects of a run go; None: not by themselves. Pure."""
    keep_s = seconds_of(annotations.get(names.KEEP, ""))
    return None if keep_s is None or not state.is_final or state.ended is None else state.ended + keep_s


def is_due(snapshot: RunSnapshot, now: float) -> bool:
    """Whether the controller removes the objects of a run. Pure.

    Anybody who may write ConfigMaps can write a record that says that its run ended long ago. So something of a run
    must be there that only those make who may create Jobs, and none of its pods may go on, whatever the record says.
    """
    state = snapshot.state
    if snapshot.keep_s is None or state.ended is None or not state.is_final or snapshot.is_deleting:
        return False
    is_over = bool(snapshot.workloads) and all(pod.end is not None for pod in snapshot.pods)
    return is_over and now >= state.ended + snapshot.keep_s


def expire_if_due(client: Client, run: str, look_s: float) -> float | None:
    """By the controller: when to look again, at the latest after `look_s`; None: its objects go, or it is gone."""
    now = client.now()
    try:
        snapshot = observe(client, run, now)
    except NotFound:
        return None
    if not is_due(snapshot, now):
        return now + look_s
    expire(client, snapshot)
    return None


def expire(client: Client, snapshot: RunSnapshot) -> None:
    """Have the objects of an ended run removed; returns before they are gone."""
    record = snapshot.record
    tails = snapshot.state.tails if record.storage is None else {}
    state = msgspec.structs.replace(snapshot.state, expired=client.now(), tails=tails)
    body = record_object(record, state)
    body["metadata"]["name"] = names.expired_name(record.name)
    body["metadata"]["labels"] |= {names.KIND: names.EXPIRED_RUN, names.ENDED: "true"}
    try:
        client.create(body)
    except AlreadyExists:
        if not _is_left_of(client, record):
            # Of an earlier run of this name, which somebody removed and made anew: the later one is what is asked for.
            client.delete(CONFIG_MAP, str(body["metadata"]["name"]))
            client.create(body)
    client.delete(CONFIG_MAP, record.name, uid=snapshot.uid)


def _is_left_of(client: Client, record: Record) -> bool:
    """Whether the copy that is there is of this very run."""
    found = client.find(CONFIG_MAP, names.expired_name(record.name))
    try:
        return found is not None and read_record(found)[0].uid == record.uid
    except BadRecord:
        return False
