"""The controller: reconciles all runs of a cluster or of some namespaces, so that nobody need be attached.

It keeps nothing that it could not read again: it watches records and what belongs to them to know whose turn it is and
whether that would do anything; a turn that does something reads its run anew. Runs that wait at the gate are served
together, those of all namespaces by one turn over one view of what is free. Only the leader works
(`kubeapi.leases.Leader`); a second one stands by. Not the decisions, which are in `decide` and `gate`.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from longboat.core.errors import LongboatError, NotFound
from longboat.core.jobs import MOST_AFTER
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.expiry import due_at, expire_if_due
from longboat.engines.kubernetes.gate.serve import GateGroup, share_gate, unshare_gate
from longboat.engines.kubernetes.observe.run_gauges import RunGauges
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.outlook import CopiedRuns, CopyVerdict, Reconciled
from longboat.engines.kubernetes.reconcile.reconciler import turn
from longboat.engines.kubernetes.reconcile.workqueue import RunKey, TurnWorkers
from longboat.engines.kubernetes.record_store import STATES, STOP
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.slim_objects import (
    RunObject,
    RunPod,
    SlimRecord,
    SlimWorkload,
    WatchedNode,
    run_object,
)
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import LeaseExpired, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, JOBSET, NODE, POD, Kind
from longboat.kubeapi.watch import Change, Reflector

WORKERS = 8  # turns wait for the API server: eight at once keep a cluster's runs going, and are no flood
SETTLE_S = 0.05
"""Changes come in bursts; one turn serves all of a burst."""
STEPS_S = 0.5
"""The same for steps on the way (a pod is scheduled, pulls its image, starts): none of them needs us at once."""
LOOK_S = 60.0
"""Every run that has not ended is looked at so often, whatever the watches tell."""
GATE_S = 0.5
"""When something was freed, those who wait at the gate are looked at at once; then so long not again."""
GATE_LOOK_S = 5.0
"""And so often anyway: nodes and pods of others are not watched."""
WAITING = ("pending", "recovering")
GATE = RunKey("")
"""The gate of all namespaces that are served."""
EXPIRY = RunKey("", "expiry")
"""Ended runs whose objects are to go."""
EXPIRY_LOOK_S = 3600.0
"""So often they are looked at anyway: no thread waits for longer than that, whatever a record says."""
SHARED = {GATE: "the gate", EXPIRY: "expiry"}


class Controller:
    """Works until it is closed, or until `may_work` says no. `say` is told one line for everything that goes wrong.

    Of `namespaces` (None: all) each is watched by itself: there may be rights in no others. `on_record` is told of
    every change of a record, with the run's phase.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespaces: Sequence[str] | None = None,
        say: Callable[[str], None],
        may_work: Callable[[], bool] = lambda: True,
        on_record: Callable[[Change[RunObject], str], None] = lambda *_: None,
    ) -> None:
        self._on_record = on_record
        self._client = client
        self._namespaces: tuple[str | None, ...] = (None,) if namespaces is None else tuple(namespaces)
        self._say = say
        self._may_work = may_work
        self._workers = TurnWorkers(self._work_on, title=_title, longest_s=LOOK_S, say=say, may_work=may_work)
        self._queue = self._workers.queue
        self._clients: dict[str, Client] = {}
        self._open: dict[RunKey, bool] = {}  # runs that have not ended: whether they wait at the gate
        self._copied = CopiedRuns(LOOK_S)
        self._starting: set[RunKey] = set()  # those of them that may hold places without having pods there
        self._chained: dict[RunKey, tuple[str, ...]] = {}  # runs that have not ended: those they start after
        self._marks: dict[str, tuple[object, ...]] = {}  # uid of a pod or workload: as it was when it last mattered
        self._served: dict[RunKey, str] = {}  # version of the record that the last turn has dealt with
        self._expiring: dict[RunKey, float] = {}  # ended runs: when their objects go, by the server's clock
        self._gate_from = 0.0  # when the gate may be served again, of `time.monotonic`
        self._gates = GateGroup(self._at_gate)
        self.gauges = RunGauges()
        self._lock = threading.Lock()
        self._reflectors: list[tuple[Kind, Reflector[Any]]] = []
        self._nodes: Reflector[Any] | None = None  # for notices of termination; without them runs go on as well

    def start(self) -> None:
        ours = names.selector([(names.MANAGED_BY, "longboat")])
        runs = names.selector([(names.MANAGED_BY, "longboat"), (names.KIND, "run")])
        self._reflect(CONFIG_MAP, SlimRecord, runs, self._record)
        # JobSet need not be served, now or ever.
        for kind, into in ((POD, RunPod), (JOB, SlimWorkload), (JOBSET, SlimWorkload)):
            self._reflect(kind, into, ours, self._part)
        self._nodes = Reflector[Any](self._client, NODE, into=WatchedNode, on_change=self._node)
        self._workers.start("turns", WORKERS)

    def close(self) -> None:
        """No turn begins any more; those under way are waited for, within reason. They may be cut off anywhere."""
        self._queue.close()
        for reflector in (*(each for _, each in self._reflectors), *([self._nodes] if self._nodes else [])):
            reflector.close()
        self._workers.join()
        for client in list(self._clients.values()):
            unshare_gate(client)

    @property
    def is_ready(self) -> bool:
        """Whether it sees what there is."""
        return all(reflector.is_fresh for kind, reflector in self._reflectors if kind != JOBSET)

    def blind_spots(self) -> list[str]:
        """Kinds that cannot be watched now, and why. Turns go on: each reads its run anew."""
        texts = [reflector.why_stale() for reflector in (*self._needed(), *([self._nodes] if self._nodes else []))]
        for kind, reflector in self._reflectors:
            if reflector.handler_trouble:
                texts.append(f"a change of {kind.plural} was not taken: {reflector.handler_trouble}")
        return [text for text in texts if text]

    def why_unhealthy(self) -> str:
        """Threads that ended, and watches that have been blind for long; empty: none."""
        stale = [text for reflector in self._needed() if (text := reflector.why_long_stale())]
        return "; ".join([*self._workers.ended(), *stale])

    def _needed(self) -> list[Reflector[Any]]:
        """A cluster need not serve JobSets."""
        pairs = list(self._reflectors)
        return [
            reflector
            for kind, reflector in pairs
            if not (kind == JOBSET and isinstance(reflector.trouble, ObjectNotFound))
        ]

    # what the watches tell

    def _reflect(self, kind: Kind, into: Any, labels: str, on_change: Callable[[Change[RunObject]], None]) -> None:
        def heard(change: Change[Any]) -> None:
            body = run_object(change.object)
            try:
                is_final = kind == CONFIG_MAP and _state(body).is_final
                self._copied.copies.note(kind, change.object, is_gone=change.type == "DELETED", is_final=is_final)
                on_change(Change(change.type, body))
            except Exception as error:  # an object that nobody foresaw must not end the watch
                meta = body.metadata
                self._say(f"{kind.kind} {meta.namespace}/{meta.name}: {type(error).__name__}: {error}")

        for namespace in self._namespaces:
            where: dict[str, Any] = {"namespace": namespace, "everywhere": namespace is None}
            made = Reflector[Any](
                self._client, kind, labels=labels, into=into, on_change=heard, kept=run_object, **where
            )
            self._reflectors.append((kind, made))

    def _record(self, change: Change[RunObject]) -> None:
        meta = change.object.metadata
        key = RunKey(meta.namespace, meta.name)
        state = _state(change.object)
        self.gauges.note(meta.namespace, meta.name, state, is_deleted=change.type == "DELETED")
        self._on_record(change, state.phase)
        if change.type == "DELETED" or state.is_final:
            self._wake_followers(key)
            if self._forget(key):
                self._wake_gate()
            if change.type == "DELETED":
                self._queue.forget(key)
            self._note_expiry(key, None if change.type == "DELETED" else due_at(meta.annotations, state))
            return
        waits = _waits(state) and STOP not in meta.annotations
        with self._lock:
            waited = self._open.get(key)
            self._open[key] = waits
            self._copied.note_open(key)
            if state.waits_for:
                self._chained[key] = state.waits_for[:MOST_AFTER]
            else:
                self._chained.pop(key, None)
            (self._starting.add if state.phase in WAITING else self._starting.discard)(key)
            is_echo = self._served.get(key) == meta.resource_version  # what our own turn has written
        if not waits:
            if not is_echo or waited:
                self._queue.note(key, time.monotonic() + SETTLE_S)
        elif not waited:
            self._queue.forget(key)  # the gate looks after it now
            self._note_gate()

    def _part(self, change: Change[RunObject]) -> None:
        """A pod, Job or JobSet of a run has changed."""
        body = change.object
        key = RunKey(body.metadata.namespace, body.metadata.labels.get(names.RUN, ""))
        is_gone = change.type == "DELETED" or body.is_over
        if is_gone:
            self._wake_gate()
        with self._lock:
            waits = self._open.get(key)
        if not self._is_news(change):
            return
        # Of a run that has ended, what still goes on was made by a process that did not know of the end.
        if key.run and waits is not True and (waits is False or not (is_gone or body.is_ending)):
            is_step = not is_gone or body.status.phase == "Succeeded"  # others of its gang still run, as a rule
            self._queue.note(key, time.monotonic() + (STEPS_S if is_step else SETTLE_S))

    def _node(self, change: Change[Any]) -> None:
        """A node has changed: the runs on it are told when it is about to go."""
        copies = self._copied.copies
        if copies.leaving.note(change.object, is_gone=change.type == "DELETED"):
            for namespace, run in copies.on_node(change.object["metadata"]["name"]):
                self._queue.note(RunKey(namespace, run), time.monotonic() + SETTLE_S)

    def _is_news(self, change: Change[RunObject]) -> bool:
        """Whether a pod or workload differs from before in something that a turn could act on."""
        uid, mark = change.object.metadata.uid, change.object.mark
        if mark is None or change.type == "DELETED":
            self._marks.pop(uid, None)
            return True
        before = self._marks.get(uid)
        self._marks[uid] = mark
        return mark != before

    def _forget(self, key: RunKey) -> bool:
        """Whether it was open."""
        with self._lock:
            self._starting.discard(key)
            self._chained.pop(key, None)
            self._served.pop(key, None)
            self._copied.forget(key)
            return self._open.pop(key, None) is not None

    def _wake_followers(self, key: RunKey) -> None:
        """A run has ended or is gone: those that start after it look at it now."""
        with self._lock:
            waiting = list(self._chained.items())
        for follower, names_before in waiting:
            if follower.namespace == key.namespace and key.run in names_before:
                self._queue.note(follower, time.monotonic() + SETTLE_S)

    def _wake_gate(self) -> None:
        """Something was freed: those who wait may fit now, wherever they are."""
        with self._lock:
            is_waited_for = any(self._open.values())
        if is_waited_for:
            self._note_gate()

    def _note_gate(self) -> None:
        self._queue.note(GATE, max(time.monotonic() + SETTLE_S, self._gate_from))

    def _note_expiry(self, key: RunKey, due: float | None) -> None:
        with self._lock:
            if due is None:
                self._expiring.pop(key, None)
                return
            self._expiring[key] = due
        self._queue.note(EXPIRY, time.monotonic() + self._expiry_pause(due))

    def _expiry_pause(self, due: float) -> float:
        return min(EXPIRY_LOOK_S, max(SETTLE_S, due - self._client.now()))

    # turns

    def _work_on(self, key: RunKey) -> float | None:
        """Seconds until it is due again although nothing changes."""
        if key == EXPIRY:
            return self._expire_due()
        if key != GATE:
            return self._turn(key)
        try:
            return self._serve_gate()
        finally:
            self._gate_from = time.monotonic() + GATE_S

    def _expire_due(self) -> float | None:
        """Remove the objects of runs whose time is over; one that cannot be removed is tried again later."""
        with self._lock:
            due = sorted((at, key) for key, at in self._expiring.items() if at <= self._client.now())
        for _, key in due:
            if not self._may_work():
                break
            try:
                again = expire_if_due(self._of(key.namespace), key.run, EXPIRY_LOOK_S)
            except (Unreachable, LeaseExpired):
                raise
            except LongboatError as error:  # one that cannot be removed must not keep all others
                again = self._client.now() + EXPIRY_LOOK_S
                self._say(f"{key.namespace}/{key.run} cannot expire: {error.message}")
            self._note_expiry(key, again)
        with self._lock:
            nearest = min(self._expiring.values(), default=None)
        return None if nearest is None else self._expiry_pause(nearest)

    def _turn(self, key: RunKey) -> float | None:
        """Seconds until the run is looked at again although nothing changes; None: it needs no turn of its own."""
        judged = self._judge(key)
        if judged.pause_s is not None:
            return max(SETTLE_S, judged.pause_s)
        outlook = self._outlook(key, judged.snapshot)
        if outlook is None or outlook.snapshot.state.is_final or outlook.snapshot.is_deleting:
            return None
        with self._lock:
            self._served[key] = outlook.snapshot.version
        if _is_at_gate(outlook):
            self._note_gate()
            return None
        if outlook.again_at is None:
            return LOOK_S
        return min(LOOK_S, max(SETTLE_S, outlook.again_at - self._client.now()))

    def _judge(self, key: RunKey) -> CopyVerdict:
        """What the watches show of a run; where they do not see all there is, nothing."""
        return self._copied.judge(key, self._client.now()) if self.is_ready else CopyVerdict()

    def _serve_gate(self) -> float | None:
        """A turn of one that waits serves all that wait beside it, in all namespaces."""
        with self._lock:
            waiting = sorted(key for key, waits in self._open.items() if waits)
        for number, key in enumerate(waiting):
            try:
                outlook = self._outlook(key, self._judge(key).snapshot)
            except (Unreachable, LeaseExpired):
                raise
            except Exception as error:  # one that cannot ask must not keep all others waiting
                if number == len(waiting) - 1:
                    raise
                self._workers.note_trouble(key, error)
                self._pass_over(key)
                continue
            if outlook is not None and outlook.snapshot.workloads_of(outlook.snapshot.state.attempt):
                return GATE_LOOK_S if _is_at_gate(outlook) else GATE_S
            if outlook is not None:
                self._pass_over(key)
                self._queue.note(key, time.monotonic() + LOOK_S)
        return GATE_LOOK_S if waiting else None

    def _pass_over(self, key: RunKey) -> None:
        """Skip a run that says it waits but has no workload to admit: other runs serve the gate from now on.

        Whoever may write ConfigMaps can write a thousand such records; each is looked at once, until it changes.
        """
        with self._lock:
            if key in self._open:
                self._open[key] = False

    def _at_gate(self) -> list[Client]:
        """Clients of all namespaces where a run waits, or was admitted and may not have its pods yet."""
        with self._lock:
            namespaces = sorted({key.namespace for key in self._starting})
        return [self._of(namespace) for namespace in namespaces]

    def _outlook(self, key: RunKey, snapshot: RunSnapshot | None = None) -> Reconciled | None:
        """Take a turn, from what was seen where that is given; None where there is no such run any more."""
        if snapshot is None:
            self._copied.note_read(key)
        try:
            return turn(self._of(key.namespace), key.run, snapshot=snapshot, leaving=self._copied.copies.leaving)
        except NotFound:
            self._forget(key)
            return None

    def _of(self, namespace: str) -> Client:
        """The same connections, seen from a run's namespace."""
        with self._lock:
            if namespace not in self._clients:
                own = copy.copy(self._client)
                own.namespace = namespace
                share_gate(own, self._gates)
                self._clients[namespace] = own
            return self._clients[namespace]


def _title(key: RunKey) -> str:
    return SHARED.get(key) or f"{key.namespace}/{key.run}"


def _state(record: RunObject) -> State:
    try:
        return STATES.decode(record.data.state)
    except (msgspec.DecodeError, RecursionError):
        return State()  # what a newer version wrote: the turn will say what is wrong


def _waits(state: State) -> bool:
    """The gate has told it what it waits for: nothing but the gate can help it on."""
    return state.phase in WAITING and bool(state.gate.reason) and state.gate.let_in is None


def _is_at_gate(outlook: Reconciled) -> bool:
    return _waits(outlook.snapshot.state) and outlook.snapshot.stop is None
