"""Logs of a run: all pods of all attempts merged, live or after the end, with what was kept of pods that are gone.

`RunLogs` answers a LogQuery. Lines of a pod are read in `lines`, over broken streams in `pod_reader`; other places that
have lines are in `sources`. Not here: observing and driving the run, which is up to whoever follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from longboat.core.errors import LongboatError
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.kubernetes.logs.follow import LiveLogs, list_pods, merged
from longboat.engines.kubernetes.logs.lack_notices import GONE, KEPT, MACHINE, LackNotices
from longboat.engines.kubernetes.logs.lines import PodLine, is_piece, lines_of_pod, of_its_node, split_key, to_log_line
from longboat.engines.kubernetes.logs.node_reader import NodeLog
from longboat.engines.kubernetes.logs.sources import FileReader, LogSources, tail_lines
from longboat.engines.kubernetes.logs.spool import LogSpool
from longboat.engines.kubernetes.manifests.volumes import STORAGE
from longboat.engines.kubernetes.observe.places import places_at, pod_playing
from longboat.engines.kubernetes.observe.restarts import MOST_ATTEMPTS
from longboat.engines.kubernetes.observe.snapshot import PodView, pod_view
from longboat.engines.kubernetes.records import Record, State, node_of_rank, ranks_of, replaced_nodes
from longboat.engines.shared.logfiles import last_lines
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, Invalid

__all__ = ["RunLogs", "lines_of_pod", "tail_lines", "tail_of"]

AT_ONCE = 16
TAIL_LINES = 50  # of each pod, in the record: a traceback, and what came before it
TAIL_S = 3.0
"""The end of a run is not held up for longer by a node that cannot be reached."""
TAIL_BYTES = 8192  # what is kept of a failed rank for `explain`
LINE_BYTES = 1024  # of each line of it
PIECES = 4  # so many times the lines that are wanted are read: pieces of unfinished ones are among them


class RunLogs:
    """The lines of one run: those there are (`past`), and those that come (`follow`)."""

    def __init__(
        self,
        client: Client,
        record: Record,
        query: LogQuery,
        *,
        on_notice: Callable[[str], None] | None = None,
        on_pod: Callable[[PodView], None] | None = None,
    ) -> None:
        """`on_pod` is told of every pod that is followed, once it has started."""
        self._client = client
        self._record = record
        self._query = query
        self._notice = on_notice or (lambda text: None)
        self._lacks = LackNotices(self._notice)
        self._on_pod = on_pod or (lambda pod: None)
        self._logs: dict[tuple[int, str], NodeLog] = {}
        self._lasting = ExitStack()

    def __enter__(self) -> RunLogs:
        self._spool = self._lasting.enter_context(
            LogSpool(
                min(self._record.job.retries.last_attempt, MOST_ATTEMPTS),
                self._node_of if self._record.job.spares else None,
            )
        )
        self._kept = LogSources(self._record, self._spool.folder, in_pod=self._in_pod, helper_pod=self._make_helper_pod)
        return self

    def __exit__(self, *_: object) -> None:
        self._lasting.close()

    # what is there now

    def past(self, state: State) -> Iterator[LogLine]:
        """All existing lines. `state`: as just observed."""
        self._read_all(self._spool, state)
        self._lacks.finish()
        lines, query = self._spool.lines(self._query), self._query
        yield from lines if query.tail is None else last_lines(lines, query.tail, of_all=query.tail_of_all)

    def _read_all(self, spool: LogSpool, state: State) -> None:
        pods = map(pod_view, list_pods(self._client, self._record))
        views = [view for view in pods if self._may_have(view)]
        silent = [view for view in views if view.is_unready and view.end is None]
        started = [view for view in views if view.is_started and view not in silent]
        absent = self._absent(state, {(view.attempt, view.node) for view in views})
        for view in silent:  # an API server that asks a dead kubelet takes half a minute to say so
            text = f"the log of {view.node} cannot be read from its machine: node {view.host} is not ready"
            self._lacks.tell(MACHINE, text)
            absent.append((view.attempt, view.node, {}))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="logs") as pool:
            for future in [pool.submit(self._read_pod, spool, view) for view in started]:
                lost = future.result()
                if lost is not None:
                    absent.append(lost)
        if state.expired is not None and self._record.storage is not None:
            return  # no Job vouches for what the record says of its storage: who may read it does so himself
        left = {view.node for view in views if view.is_replaced or view.is_killed}
        for number, node in replaced_nodes(self._record, state):
            role, _, index = node.rpartition("-")
            if self._pod_of(state, number, node) not in left and self._is_wanted(role, int(index), number):
                self._read_rest(spool, state, number, node, {})
        there = {view.node for view in started}
        for attempt, node, seen in absent:
            self._read_rest(spool, state, attempt, node, {key: n for key, n in seen.items() if "@" not in key})
            for number in state.restarted_in(attempt) if self._record.storage is not None else ():
                if self._query.attempt in (None, number) and self._pod_of(state, number, node) not in there - {node}:
                    own = {split_key(key)[0]: n for key, n in seen.items() if split_key(key)[1] == number}
                    self._read_rest(spool, state, number, node, own)

    def _read_pod(self, spool: LogSpool, view: PodView) -> tuple[int, str, dict[str, int]] | None:
        """A pod's log into the spool. What cannot be read is handed back, to be looked for elsewhere."""
        log = NodeLog(self._client, self._record.namespace, view, self._query, self._kept)
        self._logs[(view.attempt, view.node)] = log
        log.source.fills = self._query.tail is None or bool(self._query.grep)  # a match may be anywhere
        part = spool.part(view.attempt, view.node)
        try:
            for batch in log.read(follow=False):
                part.put(batch)
            ranks = ranks_of(self._record, view.role, view.index)
            if not log.source.fills and any(log.lacks(rank, self._query.tail or 0) for rank in ranks):
                part.clear()
                log = NodeLog(self._client, self._record.namespace, view, self._query, self._kept)
                self._logs[(view.attempt, view.node)] = log
                for batch in log.read(follow=False):
                    part.put(batch)
        except Forbidden:
            raise
        except Invalid:
            return None  # its container has not started
        except ApiError as error:
            self._lacks.tell(MACHINE, f"the log of {view.node} cannot be read from its machine: {error.message}")
            log.log.is_gone = True
        part.flush()
        log.source.fills = True
        return (view.attempt, view.node, log.log.seen) if log.log.is_gone else None

    def _read_rest(self, spool: LogSpool, state: State, attempt: int, node: str, seen: dict[str, int]) -> None:
        """Read the log of a node whose pod is gone from its copies."""
        part = spool.part(attempt, node)
        kind = GONE
        try:
            lines, notice = self._kept.rest(attempt, node, seen, state)
            part.put(lines)
        except LongboatError as error:
            kind, notice = KEPT, f"the log of {node} cannot be read from the storage: {error.message}"
        part.flush()
        if notice:
            self._lacks.tell(kind, notice)

    def _absent(self, state: State, there: set[tuple[int, str]]) -> list[tuple[int, str, dict[str, int]]]:
        """Nodes of attempts that have been, whose pods are gone."""
        if state.started is None:
            return []  # no launcher ever spoke
        last = state.attempt + (1 if state.is_final else 0)
        return [
            (attempt, f"{role.name}-{index}", {})
            for attempt in range(last)
            if not state.is_in_place(attempt)
            for role in self._record.job.roles
            for index in range(role.nodes)
            if (attempt, f"{role.name}-{index}") not in there and self._is_wanted_in(role.name, index, attempt, state)
        ]

    def _is_wanted_in(self, role: str, index: int, attempt: int, state: State) -> bool:
        """Whether the pod of this attempt has one that is asked for."""
        numbers = (attempt, *state.restarted_in(attempt))
        return any(self._is_wanted(role, index, number) for number in numbers)

    def _may_have(self, view: PodView) -> bool:
        """Whether a pod may have lines that are asked for: it may have been restarted in place."""
        asked = self._query.attempt
        is_later = asked is not None and asked > view.attempt and self._record.job.retries.restart == "in-place"
        return self._is_wanted(view.role, view.index, asked if is_later and asked is not None else view.attempt)

    def _is_wanted(self, role: str, index: int, attempt: int) -> bool:
        query = self._query
        if query.attempt not in (None, attempt) or (query.roles and role not in query.roles):
            return False
        if any(each.spares for each in self._record.job.roles if each.name == role):
            return True  # which ranks the pod had is known by its lines alone
        return not query.ranks or bool(set(query.ranks) & set(ranks_of(self._record, role, index)))

    def _node_of(self, rank: int) -> str | None:
        place = node_of_rank(self._record.job, rank)
        return None if place is None else place[1]

    def _pod_of(self, state: State, number: int, node: str) -> str:
        """The pod that played a node in an attempt, by the name that it was made with."""
        return pod_playing(node, places_at(self._record.job, state.attempts, number))

    # live

    @contextmanager
    def follow(self, state: State) -> Iterator[LiveLogs]:
        """New lines after those already read. `state`: as just observed."""
        with LiveLogs(self._client, self._record, self._query, open_log=self._open_log, notice=self._notice) as live:
            live.begin(state)
            yield live

    def _open_log(self, view: PodView) -> NodeLog | None:
        if not self._may_have(view):
            return None
        self._on_pod(view)
        known = self._logs.get((view.attempt, view.node))
        if known is not None and known.source.pod == view.name:
            return known
        return NodeLog(self._client, self._record.namespace, view, self._query, self._kept)

    def vanished(self, live: LiveLogs) -> Iterator[LogLine]:
        """The end of the logs of pods that were deleted while they were followed."""
        for log in live.unfinished:
            try:
                lines, notice = self._kept.rest(log.attempt, log.node, log.log.seen, live.state)
                yield from merged([self._line(line, log) for line in log.log.unshown(lines)], self._query)
            except LongboatError as error:
                notice = f"the end of the log of {log.node} cannot be read from the storage: {error.message}"
            if notice:
                self._notice(notice)

    def _line(self, line: PodLine, log: NodeLog) -> LogLine:
        return of_its_node(to_log_line(line, role=log.role, node=log.node, attempt=log.attempt), self._record.job)

    # where else lines are

    def _in_pod(self, pod: str) -> FileReader:
        from longboat.engines.kubernetes.exec.pod_exec import Remote

        return Remote(self._client, self._record.namespace, pod)

    def _make_helper_pod(self) -> FileReader:
        from longboat.engines.kubernetes.exec.helper_pod import HelperPod

        return self._lasting.enter_context(HelperPod.of_run(self._client, self._record, [STORAGE]))


def tail_of(client: Client, pod: str, lines: int = TAIL_LINES, *, namespace: str | None = None) -> str:
    """The last lines of a pod's log as it has them, at most 8 KiB, for `State.tails`; empty when there are none."""
    try:
        with client.log(pod, namespace=namespace, tail=PIECES * lines, idle_s=TAIL_S, patience_s=TAIL_S) as stream:
            kept: list[bytes] = []
            rest = b""
            for chunk in stream:
                *whole, rest = (rest + chunk).split(b"\n")
                kept = [*kept, *(line[:LINE_BYTES] for line in whole if not is_piece(line))][-lines:]
                rest = rest[: 4 * LINE_BYTES]
            kept = [*kept, rest[:LINE_BYTES]] if rest else kept
    except ApiError:
        return ""
    size = 0
    chosen: list[bytes] = []
    for line in reversed(kept[-lines:]):
        size += len(line) + 1
        if size > TAIL_BYTES:
            break
        chosen.append(line)
    return b"\n".join(reversed(chosen)).decode("utf-8", "replace")
