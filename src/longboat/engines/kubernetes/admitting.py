"""The gate at work: under the Lease, look at who waits and what is free, decide (`gate`), let runs in or put them back.

Whoever asks for one run serves all of its namespace: a run whose submitter has left is let in by those who still look.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.api.client import Client
from longboat.engines.kubernetes.api.errors import ApiError, Conflict, Forbidden, NotThere
from longboat.engines.kubernetes.api.kinds import CONFIG_MAP, JOB, JOBSET, POD, Kind
from longboat.engines.kubernetes.apply import write_state
from longboat.engines.kubernetes.gate import Candidate, Verdict, decide_gate
from longboat.engines.kubernetes.lease import GATE, Lease
from longboat.engines.kubernetes.observe import BadRecord, is_record, read_record, read_stop
from longboat.engines.kubernetes.occupancy import UNFINISHED, bound_claims, observe_room
from longboat.engines.kubernetes.planned_pods import gang_pods
from longboat.engines.kubernetes.records import Gate, Record, State
from longboat.engines.kubernetes.views import (
    PodView,
    SlimPod,
    SlimRecord,
    SlimWorkload,
    Snapshot,
    WorkloadView,
    pod_view,
    seconds,
    workload_view,
)
from longboat.fitting.pods import Claims, pod_of

OURS = f"{names.MANAGED_BY}=longboat"
ENDED = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
AT_ONCE = 100
"""Runs named in one selector; where more are asked for, all are listed."""
NEAR = 16
"""So many of those who wait, the first in the order, have their words renewed whenever somebody serves the gate."""

Object = dict[str, Any]
T = TypeVar("T")

_LEASES: weakref.WeakKeyDictionary[Client, tuple[Lease, threading.Lock]] = weakref.WeakKeyDictionary()
"""One for each client, because a dead holder is known by having been watched for a while. A Lease keeps processes
apart, the lock the threads of this one."""
_MAKING = threading.Lock()


class Waiting(msgspec.Struct, frozen=True):
    """A run that is not final, with what there is of its attempt."""

    record: Record
    state: State
    version: str
    made: float  # when the record was created, by the server's clock
    workloads: tuple[WorkloadView, ...]
    pods: tuple[PodView, ...]  # that have not ended
    unschedulable: int = 0
    ended: tuple[PodView, ...] = ()  # looked for only where a run that is in lacks pods

    @property
    def is_in(self) -> bool:
        return any(not one.is_suspended for one in self.workloads)

    @property
    def lacks_pods(self) -> bool:
        return self.is_in and len({pod.node for pod in self.pods}) < self.record.job.nodes


def ask_gate(client: Client, snapshot: Snapshot, now: float) -> State | None:
    """Serve the gate. The state of the run that asked as it is afterwards; None when somebody else serves now."""
    with _gate_held(client) as is_ours:
        return _serve_all(client, snapshot, now) if is_ours else None


@contextlib.contextmanager
def _gate_held(client: Client) -> Iterator[bool]:
    with _MAKING:
        if client not in _LEASES:
            holder = f"{socket.gethostname()}-{os.getpid()}"
            _LEASES[client] = (Lease(client, client.namespace, GATE, holder), threading.Lock())
    lease, lock = _LEASES[client]
    if not lock.acquire(blocking=False):
        yield False
        return
    try:
        try:
            is_ours = lease.try_hold()
        except Forbidden:
            # Without a Lease two may serve at once; what they do twice is put right by putting back.
            yield True
            return
        try:
            yield is_ours
        finally:
            if is_ours:
                with contextlib.suppress(ApiError):
                    lease.release()
    finally:
        lock.release()


def _serve_all(client: Client, snapshot: Snapshot, now: float) -> State | None:
    runs = _look(client)
    claims = _claims(client, runs)
    candidates = [_candidate(one, now, claims) for one in runs]
    verdicts = decide_gate(candidates, observe_room(client, with_claims=False), now)
    told: State | None = None
    by_name = {one.record.name: one for one in runs}
    # Those who are let in or put back first: telling the others what they wait for takes its time.
    ordered = sorted(verdicts, key=lambda verdict: verdict.action == "wait")
    waiting = 0
    for verdict in ordered:
        run = by_name[verdict.run]
        state = _serve(client, run, verdict, now)
        waiting += verdict.action == "wait"
        if verdict.run == snapshot.record.name:
            told = _told(snapshot.state, state)
        elif _is_news(run.state.gate, state.gate, verdict, is_near=waiting <= NEAR):
            with contextlib.suppress(Conflict, NotThere):
                write_state(client, verdict.run, run.version, state)
    return told


def _is_news(before: Gate, after: Gate, verdict: Verdict, *, is_near: bool) -> bool:
    """Whether it is written down for a run that did not ask. Whoever asks is told the newest words anyway."""
    if before == after:
        return False
    if verdict.action == "keep":
        return before.let_in is None
    is_only_words = verdict.action == "wait" and msgspec.structs.replace(before, reason=after.reason) == after
    return not is_only_words or is_near or not before.reason


def _told(mine: State, served: State) -> State:
    return msgspec.structs.replace(mine, gate=served.gate, reason=served.reason, phase=served.phase)


def _look(client: Client) -> list[Waiting]:
    """All runs that the gate concerns, with their pods."""
    found: list[tuple[Any, Record, State]] = []
    for body in client.list(CONFIG_MAP, labels=f"{OURS},{names.KIND}=run,!{names.ENDED}", into=SlimRecord).items:
        if is_record(body):
            with contextlib.suppress(BadRecord):  # told by whoever looks at it; it keeps nobody else waiting
                record, state = read_record(body)
                if record.gated_by == "longboat" and not state.is_final and read_stop(body) is None:
                    found.append((body["metadata"], record, state))
    asked = [record.name for _, record, _ in found]
    made: dict[str, list[WorkloadView]] = {}
    for kind in {JOBSET if record.workload == "jobset" else JOB for _, record, _ in found}:
        for run, views in _by_run(client, kind, asked, SlimWorkload, workload_view).items():
            made.setdefault(run, []).extend(views)
    pods = _by_run(client, POD, asked, SlimPod, _sight, fields=UNFINISHED)
    runs = [
        _waiting(meta, record, state, made[record.name], pods.get(record.name, ()))
        for meta, record, state in found
        if any(one.owner == meta["uid"] for one in made.get(record.name, ()))
    ]
    return _with_ended(client, runs)


def _sight(pod: Object) -> tuple[PodView, bool]:
    """A pod, and whether the scheduler found no node for it."""
    return pod_view(pod), pod_of(pod).is_unschedulable


def _by_run(
    client: Client, kind: Kind, runs: Sequence[str], into: Any, view: Callable[[Any], T], *, fields: str = ""
) -> dict[str, list[T]]:
    """Objects of these runs. Those of ended runs may be many more: they are not read where few are asked for."""
    labels = f"{OURS},{names.ROLE}" if kind is POD else OURS
    if len(runs) <= AT_ONCE:
        labels += f",{names.RUN} in ({','.join(runs)})"
    found: dict[str, list[T]] = {}
    for body in client.list(kind, labels=labels, fields=fields, into=into).items if runs else ():
        found.setdefault(body["metadata"]["labels"].get(names.RUN, ""), []).append(view(body))
    return found


def _with_ended(client: Client, runs: Sequence[Waiting]) -> list[Waiting]:
    """A pod that is not there is still to come, or it has ended and gave back what it held: both are told apart here.

    Only of runs that lack one: pods that have ended stay for as long as their runs do.
    """
    lacking = [run.record.name for run in runs if run.lacks_pods]
    ended: dict[str, list[PodView]] = {}
    for first in range(0, len(lacking), AT_ONCE):
        ended.update(_by_run(client, POD, lacking[first : first + AT_ONCE], SlimPod, pod_view, fields=ENDED))
    return [
        msgspec.structs.replace(
            run, ended=tuple(pod for pod in ended.get(run.record.name, ()) if pod.attempt == run.state.attempt)
        )
        for run in runs
    ]


def _waiting(
    meta: Any, record: Record, state: State, made: Sequence[WorkloadView], pods: Sequence[tuple[PodView, bool]]
) -> Waiting:
    """Workloads of another owner are not of this run, whatever their labels say."""
    own = [one for one in made if one.owner == meta["uid"] and one.attempt == state.attempt]
    return Waiting(
        record=record,
        state=state,
        version=str(meta["resourceVersion"]),
        made=created_within(record.created, seconds(meta.get("creationTimestamp"))),
        workloads=tuple(one for one in own if not one.is_deleting),
        pods=tuple(view for view, _ in pods if view.attempt == state.attempt),
        unschedulable=sum(is_unschedulable for _, is_unschedulable in pods),
    )


def created_within(told: float, stamped: float | None) -> float:
    """When a run was made, for its place in the order: the record's word within the second that the server noted."""
    return told if stamped is None else min(max(told, stamped), stamped + 1)


def _claims(client: Client, runs: Iterable[Waiting]) -> Claims:
    """Where the runs' claims can be reached; nothing where that may not be read."""
    storages = [run.record.storage for run in runs]
    volumes = [volume for run in runs for volume in run.record.job.volumes]
    is_needed = any(one is not None and one.claim for one in storages) or any(volume.claim for volume in volumes)
    return bound_claims(client) if is_needed else {}


def _candidate(run: Waiting, now: float, claims: Claims) -> Candidate:
    record, state = run.record, run.state
    let_in = (state.gate.let_in or now) if run.is_in else None
    return Candidate(
        run=record.name,
        uid=record.uid,
        created=run.made,
        pods=gang_pods(record, state.attempt, claims),
        namespace=record.namespace,
        priority=record.job.priority,
        let_in=let_in,
        tries=state.gate.tries,
        not_before=max(state.gate.not_before, state.not_before) if let_in is None else 0.0,
        is_recovering=state.attempt > 0,
        placed=tuple(pod.node for pod in (*run.ended, *(pod for pod in run.pods if pod.is_scheduled))),
        made=len(run.pods) + len(run.ended),
        ready=sum(pod.is_started for pod in run.pods) + len(run.ended),
        unschedulable=run.unschedulable,
        gate_s=record.gate_s,
    )


def _serve(client: Client, run: Waiting, verdict: Verdict, now: float) -> State:
    """Do what the verdict says; the state afterwards."""
    state = run.state
    gate = state.gate
    if not run.workloads:
        return state  # the next attempt is not there yet; its place is kept
    if verdict.action == "let_in" or (verdict.action == "keep" and any(one.is_suspended for one in run.workloads)):
        _suspend(client, run, False)
        gate = Gate(tries=verdict.tries, let_in=now, not_before=now + run.record.gate_s)
        return msgspec.structs.replace(state, gate=gate, reason="")
    if verdict.action == "put_back":
        _suspend(client, run, True)
        gate = Gate(tries=verdict.tries, not_before=verdict.not_before, reason=verdict.reason)
        return msgspec.structs.replace(state, gate=gate, reason=verdict.reason, phase="pending")
    if verdict.action == "keep":
        again = max(gate.not_before, now + run.record.gate_s / 4)
        # Whoever let it in may have died before that was noted; from now on it is counted.
        let_in = now if gate.let_in is None else gate.let_in
        return msgspec.structs.replace(state, gate=msgspec.structs.replace(gate, not_before=again, let_in=let_in))
    gate = Gate(tries=verdict.tries, not_before=verdict.not_before, reason=verdict.reason)
    return msgspec.structs.replace(state, gate=gate, reason=verdict.reason)


def _suspend(client: Client, run: Waiting, suspend: bool) -> None:
    kind = JOBSET if run.record.workload == "jobset" else JOB
    for workload in run.workloads:
        if workload.is_suspended is not suspend:
            client.patch(kind, workload.name, {"spec": {"suspend": suspend}})
