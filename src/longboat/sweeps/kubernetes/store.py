"""The ConfigMap of a sweep: found, listed and read within bounds; its state replaced at a known version.

What it says is not taken on trust: whoever may write ConfigMaps can write it. It is about the sweep of its own name and
namespace, names of runs follow from it, and what trials are made of counts only where a template vouches for it
(`trial_runs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longboat.core.errors import EngineError, NotFound
from longboat.core.guards.decoding import decoder
from longboat.core.guards.formats import FORMAT, NewerFormat, is_newer
from longboat.core.jobs import Value
from longboat.core.times import parse_time
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.record_store import (
    STOP,
    BadRecord,
    has_wild_number,
    read_record,
    read_stop,
    seconds_of,
    stop_text,
)
from longboat.engines.kubernetes.records import Record
from longboat.engines.shared.stop_request import StopRequest
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Conflict, ObjectNotFound
from longboat.kubeapi.kinds import CONFIG_MAP
from longboat.sweeps.kubernetes.sweep_objects import (
    KIND,
    MOST_TRIALS,
    hash_of,
    map_name,
    pack_state,
    unpack_state,
)
from longboat.sweeps.record import SweepRecord
from longboat.sweeps.report import planned_trials
from longboat.sweeps.trials import SweepState

MOST_MOMENT = 1e11
"""Seconds since 1970, the year 5138: later ones are no times that can be shown."""
MOST_PARALLEL = 1000
"""Trials at once that anybody drives: each is looked at in every turn."""
SWEEPS = f"{names.MANAGED_BY}=longboat,{names.KIND}={KIND}"
RECORDS = decoder(SweepRecord)

replace = msgspec.structs.replace


class BadSweep(EngineError):
    """A sweep that is not acted upon: damaged, or about another one than its object."""


class NewerSweep(BadSweep, NewerFormat):
    """A sweep that a newer Longboat wrote."""

    def __init__(self, name: str) -> None:
        NewerFormat.__init__(self, f"the sweep {name}")


class SweepChanged(EngineError):
    """Another driver was quicker: what was observed is read again."""


class StoredSweep(Value, frozen=True):
    """A sweep as its ConfigMap has it."""

    record: SweepRecord
    base: Record  # of its first trial
    state: SweepState
    uid: str  # of the ConfigMap
    version: str
    digest: str  # of what trials are made of
    made: float
    stop: StopRequest | None = None
    keep_s: float | None = None  # for how long the objects of ended trials stay
    is_deleting: bool = False


def read_sweep(body: Mapping[str, Any]) -> StoredSweep:
    """The sweep of a ConfigMap, validated; every reader goes through here. Raises BadSweep."""
    metadata, data = body.get("metadata") or {}, body.get("data") or {}
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    try:
        record = RECORDS.decode(data.get("sweep") or "")
        first = {"name": record.run_name(1), "namespace": namespace}
        base, _ = read_record({"metadata": first, "data": {"record": data.get("run") or ""}})
        state = unpack_state((body.get("binaryData") or {}).get("state") or "")
    except BadRecord as error:
        raise BadSweep(f"the sweep {name[:64]} cannot be read: {error.message}") from None
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        if is_newer(data.get("sweep") or ""):
            raise NewerSweep(name) from None
        raise _bad(name, f"is damaged: {error}") from None
    if max(record.format, state.format) > FORMAT:
        raise NewerSweep(name)
    if (map_name(record.name), record.namespace) != (name, namespace) or has_wild_number(data.get("sweep") or ""):
        raise _bad(name, f"in namespace {namespace} is about another one, or damaged")
    sweep = record.job.sweep
    if sweep is None or not 0 < planned_trials(sweep) <= MOST_TRIALS or not 0 < sweep.parallel <= MOST_PARALLEL:
        raise _bad(name, f"has no sweep, or more than {MOST_TRIALS} trials or {MOST_PARALLEL} at once")
    return StoredSweep(
        record=record,
        base=base,
        state=_checked(name, record, state, planned_trials(sweep)),
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        digest=hash_of(data),
        made=parse_time(metadata.get("creationTimestamp")) or record.created,
        stop=read_stop(body),
        keep_s=seconds_of((metadata.get("annotations") or {}).get(names.KEEP) or ""),
        is_deleting=bool(metadata.get("deletionTimestamp")),
    )


def _checked(name: str, record: SweepRecord, state: SweepState, planned: int) -> SweepState:
    """Trials are counted from 1, and their runs are called as the sweep says, whatever the state says."""
    if len(state.trials) > planned or [each.number for each in state.trials] != [*range(1, len(state.trials) + 1)]:
        raise _bad(name, "is damaged: its trials are not counted")
    moments = [state.ended, *(at for each in state.trials for at in (each.created, each.started, each.ended))]
    if not all(at is None or 0 <= at < MOST_MOMENT for at in moments):
        raise _bad(name, "is damaged: it has moments that no clock shows")
    trials = tuple(replace(trial, run=record.run_name(trial.number)) for trial in state.trials)
    return replace(state, trials=trials)


def _bad(name: str, text: str) -> BadSweep:
    shown = "".join(char if char.isprintable() else "?" for char in f"{name[:64]} {text[:300]}")
    return BadSweep(f"the sweep {shown}", hint="`longboat sweep rm --force` removes it")


def list_sweeps(client: Client, problems: list[str]) -> list[StoredSweep]:
    """All sweeps of the namespace, the newest first; those that cannot be read are told."""
    sweeps = []
    for body in client.list(CONFIG_MAP, labels=SWEEPS).items:
        try:
            sweeps.append(read_sweep(body))
        except BadSweep as error:
            problems.append(error.message)
    return sorted(sweeps, key=lambda sweep: -sweep.made)


class ClusterSweep:
    """One sweep of a cluster. What was read last is what a new state replaces."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.stored: StoredSweep | None = None

    def read(self) -> StoredSweep:
        """As it is now. Raises NotFound."""
        body = self.client.find(CONFIG_MAP, map_name(self.name))
        if body is None or (body["metadata"].get("labels") or {}).get(names.KIND) != KIND:
            self.stored = None
            raise NotFound(
                f"no sweep named {self.name!r} in namespace {self.client.namespace}",
                hint="`longboat sweep ls` lists all sweeps",
            )
        self.stored = read_sweep(body)
        return self.stored

    def record(self) -> SweepRecord:
        return (self.stored or self.read()).record

    def state(self) -> SweepState:
        return self.read().state

    def write_state(self, state: SweepState) -> None:
        """Raises SweepChanged where somebody else has written since it was read."""
        stored = self.stored or self.read()
        metadata: dict[str, Any] = {"resourceVersion": stored.version}
        if state.is_final:
            metadata["labels"] = {names.ENDED: "true"}
        body = {"metadata": metadata, "binaryData": {"state": pack_state(state)}}
        try:
            written = self.client.patch(CONFIG_MAP, map_name(self.name), body)
        except Conflict:
            raise SweepChanged(f"another process drives {self.name} too") from None
        except ObjectNotFound:
            raise NotFound(f"the sweep {self.name} was removed") from None
        version = str(written["metadata"]["resourceVersion"])
        self.stored = replace(stored, state=state, version=version)

    def stop_request(self) -> StopRequest | None:
        return (self.stored or self.read()).stop

    def request_stop(self, request: StopRequest) -> None:
        text = stop_text(request.at, request.grace_s)
        self.client.patch(CONFIG_MAP, map_name(self.name), {"metadata": {"annotations": {STOP: text}}})

    def exists(self) -> bool:
        return self.client.find(CONFIG_MAP, map_name(self.name)) is not None
