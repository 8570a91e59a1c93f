"""Serves the gate: under its Lease, list who waits and what is free, decide (`decide`), let runs in or put them back.

Whoever asks for one run serves all of its namespace: a run whose submitter has left is let in by those who still look.
A process that serves several namespaces (`share_gate`) decides for all of them at once, over one view of what is free:
what it lets in in one is counted before the next is decided, whether its pods exist yet or not.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from longboat.core.elastic.sizes import is_elastic
from longboat.core.times import parse_time
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.gate.budgets import held_runs
from longboat.engines.kubernetes.gate.decide import Admission, ClusterUsage, GateCandidate, decide_gate
from longboat.engines.kubernetes.gate.departure import is_moving
from longboat.engines.kubernetes.gate.gate_lease import HeldGate, hold_gates
from longboat.engines.kubernetes.gate.node_usage import observe_room, observe_upcoming
from longboat.engines.kubernetes.gate.waiting_runs import WaitingRun, candidate_of, created_within, observe_claims
from longboat.engines.kubernetes.observe.snapshot import (
    PodView,
    RunSnapshot,
    WorkloadView,
    pod_view,
    workload_view,
)
from longboat.engines.kubernetes.record_store import BadRecord, is_record, read_record, read_stop, write_state
from longboat.engines.kubernetes.records import Gate, Record, State, is_chained
from longboat.engines.kubernetes.slim_objects import UNFINISHED, RunPod, SlimRecord, SlimWorkload
from longboat.fitting.model.pods import pod_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Conflict, Forbidden, LeaseExpired, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, JOBSET, POD, Kind
from longboat.kubeapi.paging import collect

ENDED = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
RESIZE_LOOK_S = 20.0
"""How often it is looked whether an elastic run that is in could be larger, or is to give nodes back."""
REFUSED_S = 30.0
"""A run whose objects may not be changed is tried again after so long."""
AT_ONCE = 100
"""Runs named in one selector: of names as long as they may be, the address of a request has less than 5 KiB."""
NEAR = 16
"""So many of those who wait, the first in the order, have their words renewed whenever somebody serves the gate."""

Object = dict[str, Any]
T = TypeVar("T")

Name = tuple[str, str]
"""Namespace and name of a run."""
_SHARED: weakref.WeakKeyDictionary[Client, GateGroup] = weakref.WeakKeyDictionary()
"""Clients whose gates are served together with those of other namespaces."""


class GateGroup:
    """Gates that one process serves in one turn; `clients` says whose. One thread at a time does so."""

    def __init__(self, clients: Callable[[], Sequence[Client]]) -> None:
        self.clients = clients
        self.lock = threading.Lock()


def share_gate(client: Client, group: GateGroup) -> None:
    """A turn through this client serves the gates of all namespaces of the group."""
    _SHARED[client] = group


def unshare_gate(client: Client) -> None:
    """A group keeps its clients alive until they have left it."""
    _SHARED.pop(client, None)


def ask_gate(client: Client, snapshot: RunSnapshot, now: float) -> State | None:
    """Serve the gate. The state of the run that asked as it is afterwards; None when somebody else serves now."""
    group = _SHARED.get(client)
    if group is None:
        return _ask([client], snapshot, now)
    # Two turns at once would not see each other's decisions.
    if not group.lock.acquire(blocking=False):
        return None
    try:
        return _ask([client, *(other for other in group.clients() if other is not client)], snapshot, now)
    finally:
        group.lock.release()


def _ask(clients: Sequence[Client], snapshot: RunSnapshot, now: float) -> State | None:
    with hold_gates(clients) as gates:
        try:
            return _serve_all(clients, gates, snapshot, now) if gates else None
        except LeaseExpired:
            return None  # what was read may be old by now; whoever has the gate reads it anew


def _serve_all(clients: Sequence[Client], gates: Sequence[HeldGate], snapshot: RunSnapshot, now: float) -> State | None:
    """`clients`: of all namespaces that are looked at; only runs of `gates` are changed."""
    mine = {gate.origin.namespace: gate.client for gate in gates}
    runs, candidates = look_at_all(clients, frozenset(mine), now)
    candidates = hold_back(clients, runs, candidates, now)
    room = observe_room(clients[0], with_claims=False)
    if room is not None and any(candidate.let_in is None and candidate.not_before <= now for candidate in candidates):
        room = msgspec.structs.replace(room, upcoming=observe_upcoming(clients[0], now))
    verdicts = decide_gate(candidates, room, now)
    # Those who are let in or put back first: telling the others what they wait for takes its time.
    ordered = sorted(verdicts, key=lambda verdict: verdict.action == "wait")
    answered: State | None = None
    waiting = 0
    for verdict in ordered:
        name = (verdict.namespace, verdict.run)
        if verdict.namespace not in mine:
            continue
        client, run = mine[verdict.namespace], runs[name]
        waiting += verdict.action == "wait"
        state = _serve_one(client, run, verdict, now)
        if name == (clients[0].namespace, snapshot.record.name):
            answered = _as_served(snapshot.state, state)
        elif _is_news(run.state.gate, state.gate, verdict, is_near=waiting <= NEAR):
            with contextlib.suppress(Conflict, ObjectNotFound):
                write_state(client, verdict.run, run.version, state)
    return answered


def look_at_all(
    clients: Sequence[Client], mine: Container[str], now: float
) -> tuple[dict[Name, WaitingRun], list[GateCandidate]]:
    """The runs that the gates concern, and who is judged: of other namespaces than `mine`, those that are in."""
    runs: dict[Name, WaitingRun] = {}
    candidates: list[GateCandidate] = []
    for client in clients:
        try:
            seen = _look(client)
            claims = observe_claims(client, seen)
        except (Forbidden, ObjectNotFound):
            if client is clients[0]:
                raise
            continue  # rights were taken away there, or the namespace goes: that must not stop the gates of all others
        for run in seen:
            candidate = candidate_of(run, now, claims)
            # Another process judges the waiting runs of its gates; admitted runs count everywhere, for they hold nodes.
            if candidate is not None and (client.namespace in mine or candidate.let_in is not None):
                runs[(candidate.namespace, candidate.run)] = run
                candidates.append(candidate)
    return runs, candidates


def look_around(client: Client) -> tuple[list[GateCandidate], ClusterUsage | None]:
    """Who is at the gate, then what is free, as the gate itself looks: a pod that gets its node in between counts twice
    rather than not at all. Changes nothing."""
    now = client.now()
    candidates = hold_back([client], *look_at_all([client], frozenset([client.namespace]), now), now)
    room = observe_room(client)
    return candidates, room and msgspec.structs.replace(room, upcoming=observe_upcoming(client, now))


def hold_back(
    clients: Sequence[Client], runs: Mapping[Name, WaitingRun], candidates: Sequence[GateCandidate], now: float
) -> list[GateCandidate]:
    """The candidates, those that a budget of their namespace holds back with the reason. A retry is no new run."""
    held: dict[Name, str] = {}
    for client in clients:
        new = [
            runs[client.namespace, each.run].record
            for each in candidates
            if each.namespace == client.namespace and each.let_in is None and not each.is_recovering
        ]
        held.update({(client.namespace, run): reason for run, reason in held_runs(client, new, now).items()})
    return [
        msgspec.structs.replace(each, held=held[each.namespace, each.run])
        if (each.namespace, each.run) in held
        else each
        for each in candidates
    ]


def _serve_one(client: Client, run: WaitingRun, verdict: Admission, now: float) -> State:
    """Do what the verdict says; the state afterwards."""
    try:
        return _serve(client, run, verdict, now)
    except (Unreachable, LeaseExpired):
        raise  # nobody can be served now
    except ApiError as error:
        # One that a webhook or a quota keeps from being changed must not keep all others waiting.
        reason = f"cannot be changed: {error.message}"
        gate = Gate(tries=verdict.tries, not_before=now + REFUSED_S, reason=reason)
        return msgspec.structs.replace(run.state, gate=gate, reason=reason)


def _is_news(before: Gate, after: Gate, verdict: Admission, *, is_near: bool) -> bool:
    """Whether the record of a run other than the caller's is updated; the caller gets the newest reason anyway."""
    if before == after:
        return False
    if verdict.action == "keep":
        return before.let_in is None or verdict.size is not None
    is_only_words = verdict.action == "wait" and msgspec.structs.replace(before, reason=after.reason) == after
    return not is_only_words or is_near or not before.reason


def _as_served(mine: State, served: State) -> State:
    if served.attempt != mine.attempt:
        return served  # another size: the next attempt has it
    sizes = {"wanted": served.wanted, "seen": served.seen, "size_reason": served.size_reason}
    return msgspec.structs.replace(mine, gate=served.gate, reason=served.reason, phase=served.phase, **sizes)


def _look(client: Client) -> list[WaitingRun]:
    """All runs that the gate concerns, with the pods of those that are in."""
    # Of a thousand that wait, each body is let go as soon as it is read.
    labels = f"{names.OURS},{names.KIND}=run,!{names.ENDED}"
    records = collect(client, CONFIG_MAP, lambda body: _read(body, client.namespace), labels=labels, into=SlimRecord)
    made: dict[str, list[WorkloadView]] = {}
    for kind in (JOB, JOBSET):
        asked = [record.name for _, record, _ in records if (record.workload == "jobset") is (kind is JOBSET)]
        made.update(_by_run(client, kind, asked, SlimWorkload, workload_view))
    runs = (_waiting(meta, record, state, made.get(record.name, ())) for meta, record, state in records)
    return _with_pods(client, [run for run in runs if run is not None])


def _read(body: Any, namespace: str) -> tuple[Any, Record, State] | None:
    """Metadata, record and state of a run that the gate concerns.

    None also for a record that is damaged, of a newer version, or not its object's own: it concerns nobody else, and
    is told of by whoever looks at that run (`longboat ps`, the controller).
    """
    if not is_record(body) or read_stop(body) is not None:
        return None
    try:
        record, state = read_record(body)
    except BadRecord:
        return None
    if record.namespace != namespace or record.gated_by != "longboat" or state.is_final or is_chained(record, state):
        return None
    return body["metadata"], record, state


def _observed_pod(pod: Object) -> tuple[PodView, bool]:
    """A pod, and whether the scheduler found no node for it."""
    return pod_view(pod), pod_of(pod).is_unschedulable


def _by_run(
    client: Client, kind: Kind, runs: Sequence[str], into: Any, view: Callable[[Any], T], *, fields: str = ""
) -> dict[str, list[T]]:
    """Objects of these runs and of no others: templates, and what ended runs left, may be many times as much."""
    by_run: dict[str, list[T]] = {}
    for first in range(0, len(runs), AT_ONCE):
        labels = f"{names.OURS},{names.RUN} in ({','.join(runs[first : first + AT_ONCE])})"
        labels += f",{names.ROLE}" if kind is POD else ""
        seen = collect(client, kind, lambda body: (_run_of(body), view(body)), labels=labels, fields=fields, into=into)
        for run, item in seen:
            by_run.setdefault(run, []).append(item)
    return by_run


def _run_of(body: Any) -> str:
    return str(body["metadata"]["labels"][names.RUN])


def _waiting(meta: Any, record: Record, state: State, made: Sequence[WorkloadView]) -> WaitingRun | None:
    """None for a run that has nothing to be let in, or whose attempt is complete: it holds nothing and wants nothing.

    Workloads of another owner are not of this run, whatever their labels say.
    """
    own = [workload for workload in made if workload.owner == meta["uid"]]
    current = [workload for workload in own if workload.attempt == state.attempt]
    if not own or (current and all(workload.is_complete for workload in current)):
        return None
    return WaitingRun(
        record=record,
        state=state,
        version=str(meta["resourceVersion"]),
        made=created_within(record.created, parse_time(meta.get("creationTimestamp"))),
        workloads=tuple(view for view in current if not view.is_deleting),
    )


def _with_pods(client: Client, runs: Sequence[WaitingRun]) -> list[WaitingRun]:
    """Admitted runs with their pods. Waiting runs are judged by the pods they will have; none of theirs is read.

    A pod that is not there is still to come, or it has ended and gave back what it held: both are told apart here.
    Pods that have ended are looked for only in runs that lack one: they stay for as long as their runs do.
    """
    inside = [run.record.name for run in runs if run.is_in]
    alive = _by_run(client, POD, inside, RunPod, _observed_pod, fields=UNFINISHED)
    seen = [_with_alive(run, alive.get(run.record.name, ())) for run in runs]
    lacking = [run.record.name for run in seen if run.lacks_pods]
    ended = _by_run(client, POD, lacking, RunPod, pod_view, fields=ENDED)
    return [run.with_ended(ended.get(run.record.name, ())) for run in seen]


def _with_alive(run: WaitingRun, pods: Sequence[tuple[PodView, bool]]) -> WaitingRun:
    return msgspec.structs.replace(
        run,
        pods=tuple(view for view, _ in pods if view.attempt == run.state.attempt),
        unschedulable=sum(is_unschedulable for _, is_unschedulable in pods),
    )


def _serve(client: Client, run: WaitingRun, verdict: Admission, now: float) -> State:
    """Do what the verdict says; the state afterwards."""
    state = run.state
    gate = state.gate
    if not run.workloads:
        return state  # the next attempt is not there yet; its place is kept
    if verdict.action == "resize" and verdict.size is not None:
        return _resized(state, verdict)
    _mark(client, run, verdict.is_held)
    if verdict.action == "let_in" or (
        verdict.action == "keep" and any(workload.is_suspended for workload in run.workloads)
    ):
        _suspend(client, run, False)
        look_s = min(RESIZE_LOOK_S, run.record.gate_s / 4) if is_elastic(run.record.job) else run.record.gate_s
        gate = Gate(tries=verdict.tries, let_in=now, not_before=now + look_s, reason=verdict.reason)
        return msgspec.structs.replace(begun(state, now), gate=gate, reason="", size_reason=verdict.size_reason)
    if verdict.action == "put_back":
        _suspend(client, run, True)
        gate = Gate(tries=verdict.tries, not_before=verdict.not_before, reason=verdict.reason)
        return msgspec.structs.replace(state, gate=gate, reason=verdict.reason, phase="pending")
    if verdict.action == "keep":
        again = max(gate.not_before, now + run.record.gate_s / 4)
        if is_elastic(run.record.job):
            state, again = _wanting(state, verdict), now + min(RESIZE_LOOK_S, run.record.gate_s / 4)
        # The process that admitted it may have died before it wrote that; the time counts from now.
        let_in = now if gate.let_in is None else gate.let_in
        return msgspec.structs.replace(state, gate=msgspec.structs.replace(gate, not_before=again, let_in=let_in))
    gate = Gate(tries=verdict.tries, not_before=verdict.not_before, reason=verdict.reason)
    return msgspec.structs.replace(state, gate=gate, reason=verdict.reason)


def begun(state: State, now: float) -> State:
    """The attempt begins when it is let in: until then its pods do not exist and it holds no GPU. Pure."""
    attempts = [
        msgspec.structs.replace(each, started=max(each.started, now)) if each.number == state.attempt else each
        for each in state.attempts
    ]
    return msgspec.structs.replace(state, attempts=tuple(attempts))


def _resized(state: State, verdict: Admission) -> State:
    """The next attempt, which has not begun any more than this one, gets another size. It is no retry."""
    return msgspec.structs.replace(
        state,
        size=verdict.size,
        resizes=state.resizes + 1,
        attempt=state.attempt + 1,
        attempts=tuple(each for each in state.attempts if each.number < state.attempt),
        gate=Gate(tries=verdict.tries, fits=verdict.fits, reason=verdict.reason),
        reason=verdict.reason,
        size_reason=verdict.size_reason,
    )


def _wanting(state: State, verdict: Admission) -> State:
    """An elastic run that is in, with the size that it is to have."""
    if state.wanted == verdict.size or is_moving(state):
        return state  # nodes of it are about to go: the next attempt has what fits then
    reason = verdict.size_reason if verdict.size is not None else ""
    return msgspec.structs.replace(state, wanted=verdict.size, seen=None, size_reason=reason)


def _mark(client: Client, run: WaitingRun, is_held: bool) -> None:
    """Tell the autoscaler whether machines are wanted for it."""
    kind = JOBSET if run.record.workload == "jobset" else JOB
    for workload in run.workloads:
        if workload.is_held is not is_held:
            client.patch(kind, workload.name, {"metadata": {"labels": {names.HELD: "budget" if is_held else None}}})


def _suspend(client: Client, run: WaitingRun, suspend: bool) -> None:
    kind = JOBSET if run.record.workload == "jobset" else JOB
    for workload in run.workloads:
        if workload.is_suspended is not suspend:
            client.patch(kind, workload.name, {"spec": {"suspend": suspend}})
