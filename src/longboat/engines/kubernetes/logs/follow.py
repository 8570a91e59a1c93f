"""Live logs of a run: lines of all its pods as they are written, a thread for each pod, retries included.

Lines come in the order they arrive, what arrives together by time, each rank's own order kept. An attempt's lines come
before the next one's. Not here: what has ended already (`merge`).
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any

from longboat.core.jobs import Job
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.logs.lines import PodLine, of_its_node, to_log_line
from longboat.engines.kubernetes.logs.node_reader import NodeLog
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, pod_view
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.shared.logfiles import matcher
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, Unreachable
from longboat.kubeapi.kinds import POD
from longboat.kubeapi.refusals import Refusals
from longboat.kubeapi.watch import Change, Reflector

HELD_BYTES = 32 << 20
"""Of all pods together, lines that are not shown yet: enough that no connection idles while a terminal scrolls. Threads
wait when there is more, and with them their streams; every pod may hold one batch, so that none waits for another."""
LINE_BYTES = 256
"""What a line takes in memory besides its text, as measured: short lines are mostly this."""
LOOK_S = 2.0
"""How often the run's state is looked at when nothing happens."""
RUNNING_LOOK_S = 10.0
"""The same while it runs: its pods tell of their end themselves."""
SOON_S = 0.2
"""The same, when pods changed or all of them have ended."""
OUTAGE_S = 300.0
"""For so long an API server that does not answer is waited for."""
LATE_S = 10.0
"""After the run has ended, the log of a machine that the API server cannot reach is waited for so long."""


class ByteBudget:
    """Bytes that all readings together may hold."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._held: dict[NodeReading, int] = {}

    def take(self, reading: NodeReading, count: int) -> None:
        """Wait for room in the buffer. A reader that holds nothing gets it at once, so that none starves."""
        with self._changed:
            while self._held.get(reading) and sum(self._held.values()) + count > self._limit:
                self._changed.wait()
            self._held[reading] = self._held.get(reading, 0) + count

    def give_back(self, reading: NodeReading, count: int) -> None:
        """Free so much of the buffer that this reader holds."""
        with self._changed:
            self._held[reading] -= count
            self._changed.notify_all()

    def leave(self, reading: NodeReading) -> None:
        """Let a stopped reader through: nobody takes its lines any more."""
        with self._changed:
            self._held[reading] = 0
            self._changed.notify_all()


class NodeReading:
    """One node's log, read in a thread of its own into the queue."""

    def __init__(self, log: NodeLog, job: Job, out: queue.Queue[NodeReading | None], room: ByteBudget) -> None:
        self.log = log
        self._job = job
        self.lines: queue.SimpleQueue[list[LogLine]] = queue.SimpleQueue()
        self.error: Exception | None = None
        self.is_done = False
        self.moved = time.monotonic()
        self._out = out
        self._room = room
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"log-{log.node}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        log = self.log
        try:
            for batch in log.read(follow=True):
                lines = [self._named(pod_line) for pod_line in batch]
                self._room.take(self, held_bytes(lines))
                if self._stopped:
                    return
                self.moved = time.monotonic()
                self.lines.put(lines)
                self._out.put(self)
        except Exception as error:  # told by whoever reads the queue
            self.error = error
        finally:
            self.is_done = True
            self._out.put(None)

    def _named(self, line: PodLine) -> LogLine:
        log = self.log
        return of_its_node(to_log_line(line, role=log.role, node=log.node, attempt=log.attempt), self._job)

    def take(self) -> list[LogLine]:
        """Take all queued lines. They count as held until `release`."""
        lines: list[LogLine] = []
        with contextlib.suppress(queue.Empty):
            while True:
                lines += self.lines.get_nowait()
        return lines

    def release(self, count: int) -> None:
        """So many bytes of the lines that were taken have been shown."""
        if not self._stopped:
            self._room.give_back(self, count)

    def stop(self) -> None:
        self._stopped = True
        self.log.stop()
        self._room.leave(self)


class LiveLogs:
    """The lines of a run's pods as they are written. `open_log` makes the reader of a pod, None: not wanted.

    It neither observes nor drives the run: whoever reads here does that when `wants_state`, tells what was seen
    (`know`) and takes what `arrived`, in turns, until it `is_complete`.
    """

    def __init__(
        self,
        client: Client,
        record: Record,
        query: LogQuery,
        *,
        open_log: Callable[[PodView], NodeLog | None],
        notice: Callable[[str], None],
    ) -> None:
        self.state = State()
        self.is_complete = False
        self._client = client
        self._record = record
        self._query = query
        self._open_log = open_log
        self._notice = notice
        self._queue: queue.Queue[NodeReading | None] = queue.Queue()
        self._readings: dict[str, NodeReading] = {}
        self._room = ByteBudget()
        self._ignored: set[str] = set()
        self._looked = 0.0
        self._is_stale = False  # something happened that may be the end of the run
        self._over: dict[int, set[str]] = {}  # attempt -> pods whose containers have ended
        self._answered = time.monotonic()
        self._refusals = Refusals(was_allowed=True)  # whoever follows has seen the run
        self._last: list[PodView] | None = None
        self._ended = 0.0  # when we learnt that the run has ended
        labels = names.pods_of(record.name)
        self._pods: Reflector[dict[str, Any]] = Reflector(
            client, POD, namespace=record.namespace, labels=labels, on_change=self._pod_changed
        )

    def __enter__(self) -> LiveLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for reading in self._readings.values():
            reading.stop()
        self._pods.close()

    def begin(self, state: State) -> None:
        """Wait until the pods are known. `state`: as it was seen just now."""
        self._pods.sync()
        self.state, self._looked = state, time.monotonic()
        if any(view.end is not None for view in self._views()):
            self._is_stale = True

    def _pod_changed(self, change: Change[dict[str, Any]]) -> None:
        """A pod that starts has a log to open; one that ends may end the run."""
        view = pod_view(change.object)
        if change.type == "DELETED" or view.end is not None:  # the kubelet calls the pod itself ended a second later
            self._is_stale = True
        if view.end is not None:
            over = self._over.setdefault(view.attempt, set())
            over.add(view.uid)
            if len(over) == self._record.job.pods:
                self._looked = 0.0  # the attempt is over: its end need not wait for the next look
        self._queue.put(None)

    def wants_state(self) -> bool:
        """Whether the run is to be observed now. What changes from here on is a reason to observe it again."""
        if self.state.is_final or self._pause() > 0:
            return False
        self._is_stale = False
        return True

    def note_snapshot(self, snapshot: RunSnapshot) -> None:
        self.note_state(snapshot.state, snapshot.pods)

    def note_state(self, state: State, pods: Sequence[PodView] = ()) -> None:
        """Note the observed state of the run, and the pods by which it was judged. Raises Unreachable, Forbidden."""
        if state.is_final:
            # The watch may lag behind: these are all the pods there will ever be. They are not listed again where all
            # have ended: a list right after a write waits for up to 0.1 s until the API server's copy has caught up.
            is_known = bool(pods) and all(pod.end is not None for pod in pods)
            self._last = list(pods) if is_known else [pod_view(pod) for pod in list_pods(self._client, self._record)]
            self._ended = time.monotonic()
        self.state = state
        self._answered = self._looked = time.monotonic()
        self._refusals.note_answer()

    def note_unreachable(self, error: Unreachable | Forbidden) -> None:
        """The run could not be observed. Raises the error once that has lasted too long."""
        self.state, self._looked = State(), time.monotonic()
        if isinstance(error, Forbidden):
            is_over = not self._refusals.may_pass()
        else:
            is_over = time.monotonic() - self._answered > OUTAGE_S
        if is_over:
            raise error

    def arrived(self) -> Iterator[LogLine]:
        """Queued lines; waits for the next where there are none."""
        self._start()
        if self.state.is_final and self._is_finished():
            yield from self._queued(block=False)
            self.is_complete = True
        else:
            yield from self._queued()

    @property
    def unfinished(self) -> list[NodeLog]:
        """Nodes whose pods vanished while they were followed."""
        return [reading.log for reading in self._readings.values() if reading.log.log.is_gone]

    def _pause(self) -> float:
        """Seconds until the run's state is looked at again."""
        is_quiet = bool(self._readings) and all(reading.is_done for reading in self._readings.values())
        calm_s = RUNNING_LOOK_S if self.state.phase == "running" else LOOK_S
        wait = SOON_S if self._is_stale or is_quiet else calm_s
        return max(0.0, self._looked + wait - time.monotonic())

    def _views(self) -> list[PodView]:
        return [pod_view(pod) for pod in self._pods.items.values()] if self._last is None else self._last

    def _start(self) -> None:
        """A thread for every pod that has begun, attempt by attempt."""
        views = [view for view in self._views() if view.is_started and view.uid not in self._ignored]
        for view in views:
            if view.end is not None and view.uid in self._readings:
                self._readings[view.uid].log.log.conclude()
        new = [view for view in views if view.uid not in self._readings]
        answering = {view.uid for view in views if not view.is_unready}
        self._leave_silent(max((view.attempt for view in new), default=0), answering)
        working = [reading.log.attempt for reading in self._readings.values() if not reading.is_done]
        if not new:
            return
        current = min([*working, *(view.attempt for view in new)])
        for view in new:
            if view.attempt == current:
                log = self._open_log(view)
                if log is None:
                    self._ignored.add(view.uid)
                else:
                    self._readings[view.uid] = NodeReading(log, self._record.job, self._queue, self._room)

    def _leave_silent(self, attempt: int, answering: set[str]) -> None:
        """Stop waiting for logs of earlier attempts on lost nodes: they must not hold this attempt's lines back."""
        for uid, reading in self._readings.items():
            is_silent = uid not in answering and time.monotonic() - reading.moved > LATE_S
            if reading.log.attempt < attempt and is_silent and not reading.is_done:
                self._notice(f"the log of {reading.log.node} may lack its end: its node does not answer")
                reading.stop()
                reading.is_done = reading.log.log.is_gone = True

    def _queued(self, *, block: bool = True) -> Iterator[LogLine]:
        """Newly queued lines of all nodes, merged."""
        ready: dict[int, NodeReading] = {}
        try:
            item = self._queue.get(timeout=self._pause() or SOON_S) if block else self._queue.get_nowait()
            while True:
                if item is not None:
                    ready[id(item)] = item
                item = self._queue.get_nowait()
        except queue.Empty:
            pass
        for reading in self._readings.values():
            if reading.error is not None:
                raise reading.error
        taken = [(reading, reading.take()) for reading in ready.values()]
        counts = [(reading, held_bytes(lines)) for reading, lines in taken]
        try:
            yield from merged([line for _, lines in taken for line in lines], self._query)
        finally:
            for reading, count in counts:
                reading.release(count)

    def _is_finished(self) -> bool:
        """After the run's end: whether all that was written has been read, or never will be."""
        known = [view for view in self._views() if view.is_started and view.uid not in self._ignored]
        if any(view.uid not in self._readings for view in known):
            return False
        now = time.monotonic()
        for reading in self._readings.values():
            log = reading.log.log
            patience = LATE_S if log.is_refused else OUTAGE_S
            if not reading.is_done and log.trouble and now - max(reading.moved, self._ended) > patience:
                self._notice(f"the log of {reading.log.node} may lack its end: {reading.log.log.trouble}")
                reading.stop()
                reading.is_done = True
        return all(reading.is_done for reading in self._readings.values()) and self._queue.empty()


def held_bytes(lines: list[LogLine]) -> int:
    """Memory that these lines take."""
    return sum(len(line.data) for line in lines) + LINE_BYTES * len(lines)


def list_pods(client: Client, record: Record) -> list[dict[str, Any]]:
    return client.list(POD, namespace=record.namespace, labels=names.pods_of(record.name)).items


def merged(lines: list[LogLine], query: LogQuery) -> Iterator[LogLine]:
    """Lines of all nodes by time, in order per rank and stream, filtered by the query."""
    streams: dict[tuple[str, int, str, int], list[LogLine]] = {}
    matches = matcher(query)
    if matches is not None:
        lines = list(compress(lines, matches([line.data for line in lines])))
    for line in lines:
        if query.attempt not in (None, line.attempt):
            continue
        if (query.ranks and line.rank not in query.ranks) or (query.since is not None and line.time < query.since):
            continue
        streams.setdefault((line.node, line.rank, line.stream, line.attempt), []).append(line)
    if len(streams) == 1:
        yield from next(iter(streams.values()))
    else:
        yield from heapq.merge(*streams.values(), key=lambda line: line.time)
