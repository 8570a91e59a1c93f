"""Reconciles one run: observe, decide, apply. One turn at once, or a Reconciler that takes one whenever something about
the run has changed.

What a turn would write down, without taking it, is in `outlook`.

A Reconciler watches, and decides over what the watches show only whether a turn is worth taking: watches of several
kinds tell of changes in any order, so every turn reads the run anew.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import msgspec

from longboat.core.errors import RUN_LOST_EXIT, EngineError, NotFound
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.creation import CannotRetry, ForeignObject
from longboat.engines.kubernetes.observe.node_notices import LeavingNodes, selector_of
from longboat.engines.kubernetes.observe.observe import observe, snapshot_of
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot, pod_view, workload_view
from longboat.engines.kubernetes.reconcile.actions import Action, Decision
from longboat.engines.kubernetes.reconcile.apply import Applied, apply
from longboat.engines.kubernetes.reconcile.chain import drive_predecessors
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.reconcile.outlook import AGAIN_S, MOST_TURNS, Reconciled, predicted
from longboat.engines.kubernetes.record_store import write_state
from longboat.engines.kubernetes.records import Record, at_present
from longboat.engines.kubernetes.slim_objects import UNFINISHED, WatchedNode
from longboat.engines.shared.retry_policy import describe
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Conflict, Forbidden, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, JOBSET, NODE, POD, Kind
from longboat.kubeapi.refusals import Refusals
from longboat.kubeapi.watch import Change, Reflector

POLL_S = 1.0
"""How often a run is looked at where nothing may be watched."""
BLIND_POLL_S = 5.0
"""How often a run is looked at while its watches are broken: nothing would wake us, and an end must not be missed."""
OTHERS_S = 15.0
"""An object in the way of the next attempt may be that of somebody who just makes the attempt, with another version of
Longboat: making one takes a second or two. If there is no attempt after this, the run ends."""
SETTLE_S = 0.02
"""Changes come in bursts; one turn serves all of a burst."""
MOST_WATCHED = 64
"""Nodes of a run that are named in one selector: the address of a request has less than 5 KiB. Those of larger runs are
watched by the controller, as all are."""
LONGEST_S = 3600.0
"""After so long it is looked at again in any case, which costs nothing."""
PATIENCE_S = 300.0
"""An API server that does not answer is waited for as long as this."""


def turn(
    client: Client, run: str, *, snapshot: RunSnapshot | None = None, leaving: LeavingNodes | None = None
) -> Reconciled:
    """Take turns until nothing is left to do now, from what was just observed. Raises NotFound."""
    snapshot = snapshot or observe(client, run, client.now(), leaving)
    done: tuple[Action, ...] = ()
    for _ in range(MOST_TURNS):
        decided = decide(snapshot, client.now())
        if decided.state is None and not decided.actions:
            return Reconciled(snapshot, decided.again_at)
        if decided.state is None and decided.actions == done:
            return Reconciled(snapshot, client.now() + AGAIN_S)  # the gate is closed, or another process holds it
        done = decided.actions
        applied = _take(client, snapshot, decided)
        if applied is None or (decided.actions and not applied.is_held):
            snapshot = observe(client, run, client.now(), leaving)
            continue
        record = at_present(snapshot.record, applied.state)
        snapshot = msgspec.structs.replace(snapshot, record=record, state=applied.state, version=applied.version)
        if applied.is_held:
            return Reconciled(snapshot, client.now() + AGAIN_S)
    return Reconciled(snapshot, client.now() + AGAIN_S)


def turn_or_look(
    client: Client, run: str, may_act: Callable[[Record], bool], leaving: LeavingNodes | None = None
) -> Reconciled:
    """A turn of a run that the caller may act for, of a chained one after turns of the runs before it; of another run a
    look. Raises NotFound."""
    snapshot = observe(client, run, client.now(), leaving)
    if not may_act(snapshot.record):
        return predicted(snapshot, client.now())
    if drive_predecessors(client, snapshot, may_act, lambda before: turn(client, before).snapshot.state):
        snapshot = observe(client, run, client.now(), leaving)
    return turn(client, run, snapshot=snapshot, leaving=leaving)


def _take(client: Client, snapshot: RunSnapshot, decided: Decision) -> Applied | None:
    """One turn: apply; None on a conflict with another writer, and where the run may not go on."""
    try:
        return apply(client, snapshot, decided)
    except Conflict:
        return None
    except CannotRetry as error:
        _end(client, snapshot, error)
        return None
    except ForeignObject as error:
        if client.now() >= snapshot.state.not_before + OTHERS_S:
            _end(client, snapshot, error)
        return None
    except ObjectNotFound:
        # The run is being removed under our hands, or its namespace.
        return None


def _end(client: Client, snapshot: RunSnapshot, error: CannotRetry | ForeignObject) -> None:
    """The next attempt may not be made: the run ends as its last attempt did, and says why it was the last."""
    state = snapshot.state
    failure = next((attempt.failure for attempt in reversed(state.attempts) if attempt.failure is not None), None)
    reason = f"not tried again: {error.message}"
    ended = max([attempt.ended for attempt in state.attempts if attempt.ended is not None], default=client.now())
    final = msgspec.structs.replace(
        state,
        phase="failed",
        exit_code=failure.exit_code if failure is not None else RUN_LOST_EXIT,
        cause=failure.cause if failure is not None else "lost",
        reason=f"{describe(failure)}; {reason}" if failure is not None else reason,
        ended=ended,
    )
    with contextlib.suppress(Conflict, ObjectNotFound):
        write_state(client, snapshot.record.name, snapshot.version, final)


def shortest(pauses: Sequence[float]) -> float | None:
    """How long to wait; None: until something happens. A moment of a record may be further away than threads can wait
    for."""
    return min((*pauses, LONGEST_S)) if pauses else None


class OtherPod(msgspec.Struct):
    """Another run's pod as a run that waits at the gate sees it: it only matters when the pod ends."""

    class Meta(msgspec.Struct, rename="camel"):
        uid: str = ""
        resource_version: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)


class Reconciler:
    """Follows one run to its end and takes its turns. For one thread; `close` may come from another.

    `may_act` says of a run as it is seen whether its turns are taken here; of another one they are only predicted.
    """

    def __init__(self, client: Client, run: str, may_act: Callable[[Record], bool] = lambda _: True) -> None:
        self.client = client
        self.run = run
        self._may_act = may_act
        self._wake = threading.Event()
        self._is_closed = False
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._gate: Reflector[Any] | None = None
        self._nodes: Reflector[Any] | None = None  # those that it runs on
        self._watched_nodes = ""  # their selector
        self._has_notice = False  # of termination, or that one was taken back, since the last turn
        self._leaving = LeavingNodes()
        self._refusals = Refusals()
        self._again_at: float | None = None  # as the watches show it, since the last turn

    def __enter__(self) -> Reconciler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        for reflector in (*self._reflectors.values(), self._gate, self._nodes):
            if reflector is not None:
                reflector.close()

    def snapshots(self, timeout_s: float | None = None) -> Iterator[RunSnapshot]:
        """The run after every turn, until it has ended or the time is over. Raises NotFound."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        outlook = self._turn(deadline)
        if not outlook.snapshot.state.is_final:
            self._watch(outlook.snapshot.record)
        while True:
            yield outlook.snapshot
            if outlook.snapshot.state.is_final or self._is_closed:
                return
            self._watch_other_runs(outlook.snapshot)
            self._watch_nodes(outlook.snapshot)
            if not self._wait(outlook, deadline):
                return
            outlook = self._turn(deadline)

    def _turn(self, deadline: float | None) -> Reconciled:
        """A turn; an API server that is away for a while, or has not read its roles yet, is waited for."""
        patience = time.monotonic() + PATIENCE_S
        self._again_at = None
        self._has_notice = False
        while True:
            try:
                outlook = turn_or_look(self.client, self.run, self._may_act, self._leaving)
                self._refusals.note_answer()
                return outlook
            except (Unreachable, Forbidden) as error:
                now = time.monotonic()
                if isinstance(error, Forbidden) and not self._refusals.may_pass():
                    raise
                if now >= patience or (deadline is not None and now >= deadline) or self._is_closed:
                    raise
                self._wake.wait(POLL_S)

    def _watch(self, record: Record) -> None:
        selector = names.selector([(names.RUN, self.run)])
        self._reflect("record", CONFIG_MAP, fields=f"metadata.name={self.run}")
        self._reflect("workloads", JOBSET if record.workload == "jobset" else JOB, labels=selector)
        self._reflect("pods", POD, labels=names.pods_of(self.run))

    def _reflect(self, name: str, kind: Kind, *, labels: str = "", fields: str = "") -> None:
        if name not in self._reflectors:
            self._reflectors[name] = Reflector(self.client, kind, labels=labels, fields=fields, on_change=self._changed)

    def _changed(self, _: Change[Any]) -> None:
        self._wake.set()

    def _watch_other_runs(self, snapshot: RunSnapshot) -> None:
        """While the run waits at the gate, the ends of other runs' pods concern it."""
        is_held = snapshot.record.gated_by == "longboat" and any(
            workload.is_suspended for workload in snapshot.workloads
        )
        if is_held and self._gate is None:
            # Pods that have ended leave this watch as if they were deleted, and cost nothing however many there are.
            labels, fields = f"{names.MANAGED_BY}=longboat", UNFINISHED
            self._gate = Reflector(
                self.client, POD, labels=labels, fields=fields, into=OtherPod, on_change=self._on_other_run
            )
        elif not is_held and self._gate is not None:
            self._gate.close()
            self._gate = None

    def _watch_nodes(self, snapshot: RunSnapshot) -> None:
        """While the run runs, notices of termination of its nodes concern it. Who may not watch nodes goes without."""
        pods = snapshot.pods_of(snapshot.state.attempt) if snapshot.state.phase == "running" else ()
        hosts = sorted({pod.host for pod in pods if pod.host and pod.end is None})
        labels = selector_of(hosts)
        if self._nodes is not None and self._watched_nodes != labels:
            self._nodes.close()
            self._nodes = None
        if self._nodes is None and labels and len(hosts) <= MOST_WATCHED and self._may_act(snapshot.record):
            self._watched_nodes = labels
            self._nodes = Reflector(
                self.client, NODE, labels=labels, into=WatchedNode, on_change=self._on_node, is_optional=True
            )

    def _on_node(self, change: Change[Any]) -> None:
        if self._leaving.note(change.object, is_gone=change.type == "DELETED"):
            self._has_notice = True
            self._wake.set()

    def _on_other_run(self, change: Change[Any]) -> None:
        if change.type == "DELETED":
            self._wake.set()

    def _wait(self, outlook: Reconciled, deadline: float | None) -> bool:
        """Wait until a turn is worth taking. False on timeout."""
        while not self._is_closed:
            pause = self._pause(outlook, deadline)
            if pause is not None and pause <= 0:
                return deadline is None or time.monotonic() < deadline
            if self._wake.wait(pause):
                self._wake.clear()
                time.sleep(SETTLE_S)
                self._wake.clear()
                if self._is_due():
                    return True
        return False

    def _pause(self, outlook: Reconciled, deadline: float | None) -> float | None:
        """Seconds until we look although nothing has changed."""
        pauses = [deadline - time.monotonic()] if deadline is not None else []
        now = self.client.now()
        pauses += [moment - now for moment in (outlook.again_at, self._again_at) if moment is not None]
        if any(isinstance(reflector.trouble, (Forbidden, ObjectNotFound)) for reflector in self._reflectors.values()):
            pauses.append(POLL_S)
        elif not all(reflector.is_fresh for reflector in self._reflectors.values()):
            pauses.append(BLIND_POLL_S)
        return shortest(pauses)

    def _is_due(self) -> bool:
        """Whether a turn would do something, as far as the watches show."""
        if (
            self._has_notice
            or self._gate is not None
            or not all(reflector.is_synced for reflector in self._reflectors.values())
        ):
            return True
        bodies = list(self._reflectors["record"].items.values())
        if not bodies:
            return True
        try:
            seen = snapshot_of(
                bodies[0],
                workloads=[workload_view(each) for each in self._reflectors["workloads"].items.values()],
                pods=[pod_view(each) for each in self._reflectors["pods"].items.values()],
            )
        except EngineError:
            return True
        decided = decide(seen, self.client.now())
        self._again_at = decided.again_at
        return bool(seen.state.is_final or seen.is_deleting or decided.state is not None or decided.actions)


def wait_for_end(
    client: Client, run: str, timeout_s: float | None, may_act: Callable[[Record], bool] = lambda _: True
) -> RunSnapshot:
    """Follow the run until it has ended, or the time is over: then the last Snapshot is not final. Raises NotFound."""
    last: RunSnapshot | None = None
    with Reconciler(client, run, may_act) as driver:
        for snapshot in driver.snapshots(timeout_s):
            last = snapshot
    if last is None:
        raise NotFound(f"no run named {run!r}")
    return last
