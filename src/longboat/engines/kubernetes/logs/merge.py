"""Logs of a run: all pods of all attempts merged, live or after the end, with what was kept of pods that are gone.

`RunLogs` answers a LogQuery. Lines of a pod are read in `lines`, over broken streams in `pod_reader`; other places that
have lines are in `sources`. Not here: observing and driving the run, which is up to whoever follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.kubernetes.logs.absent_nodes import AbsentNode, absent_nodes
from longboat.engines.kubernetes.logs.follow import LiveLogs, list_pods, merged
from longboat.engines.kubernetes.logs.lack_notices import GONE, KEPT, MACHINE, LackNotices
from longboat.engines.kubernetes.logs.lines import (
    PodLine,
    is_piece,
    lines_of_pod,
    of_its_node,
    place_of,
    split_key,
    to_log_line,
)
from longboat.engines.kubernetes.logs.node_reader import COPIES, GivenLines, NodeLog
from longboat.engines.kubernetes.logs.pod_reader import in_batches
from longboat.engines.kubernetes.logs.sources import FileReader, LogSources, tail_lines
from longboat.engines.kubernetes.logs.spool import LogSpool, SpooledNode
from longboat.engines.kubernetes.manifests.volumes import STORAGE
from longboat.engines.kubernetes.observe.restarts import MOST_ATTEMPTS
from longboat.engines.kubernetes.observe.snapshot import PodView, pod_view
from longboat.engines.kubernetes.records import Record, State, node_of_rank, ranks_of
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
        self._logs: dict[str, NodeLog] = {}  # by uid of their pods
        self._given = GivenLines()
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
        views = sorted((view for view in pods if self._may_have(view)), key=lambda view: view.created)
        silent = [view for view in views if view.is_unready and view.end is None]
        unread: dict[str, dict[str, int]] = {view.uid: {} for view in silent}  # what was seen of their logs
        for view in silent:  # an API server that asks a dead kubelet takes half a minute to say so
            text = f"the log of {view.node} cannot be read from its machine: node {view.host} is not ready"
            self._lacks.tell(MACHINE, text)
        of_member: dict[tuple[int, str], list[PodView]] = {}  # a member may have had one pod after another
        for view in views:
            if view.is_started and view.uid not in unread:
                of_member.setdefault((view.attempt, view.node), []).append(view)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="logs") as pool:
            for future in [pool.submit(self._read_pods, spool, group) for group in of_member.values()]:
                unread |= future.result()
        if state.expired is not None and self._record.storage is not None:
            return  # no Job vouches for what the record says of its storage: who may read it does so himself
        for absent in self._absent(state, views, unread):
            seen = unread.get(absent.lost.uid, {}) if absent.lost is not None else {}
            own = {split_key(key)[0]: n for key, n in seen.items() if _number_of(key, absent.attempt) == absent.number}
            self._read_rest(spool, state, absent, own)

    def _absent(self, state: State, views: list[PodView], unread: Collection[str]) -> Iterator[AbsentNode]:
        """Nodes that are asked for whose logs are to be looked for in copies. Without a storage there is one for all
        attempts of a pod: what the record has."""
        known: set[tuple[int, str]] = set()
        for absent in absent_nodes(self._record, state, views, unread):
            role, _, index = absent.node.rpartition("-")
            if self._record.storage is not None:
                if self._is_wanted(role, int(index), absent.number):
                    yield absent
            elif (absent.attempt, absent.node) not in known and self._is_wanted_in(role, int(index), absent, state):
                known.add((absent.attempt, absent.node))
                yield msgspec.structs.replace(absent, number=absent.attempt)

    def _read_pods(self, spool: LogSpool, views: list[PodView]) -> dict[str, dict[str, int]]:
        """The logs of one member's pods into the spool, the first one first. What was seen of those that cannot be
        read to their end is handed back by their uids: the rest is looked for elsewhere."""
        part = spool.part(views[0].attempt, views[0].node)
        logs = [self._read_pod(part, view, fills=self._query.tail is None or bool(self._query.grep)) for view in views]
        ranks = ranks_of(self._record, views[0].role, views[0].index)
        tail = self._query.tail or 0
        if any(not log.source.fills and any(log.lacks(rank, tail) for rank in log.ranks(ranks)) for log in logs):
            part.clear()
            for view in views:
                self._given.forget(view.uid)
            logs = [self._read_pod(part, view, fills=True) for view in views]
        part.flush()
        for log in logs:
            log.source.fills = True
        return {log.uid: log.log.seen for log in logs if log.log.is_gone}

    def _read_pod(self, part: SpooledNode, view: PodView, *, fills: bool) -> NodeLog:
        """`fills`: what its log lacks is looked for elsewhere; a match may be anywhere."""
        log = self._logs[view.uid] = self._log_of(view)
        log.source.fills = fills
        try:
            for batch in log.read(follow=False):
                part.put(batch)
        except Forbidden:
            raise
        except Invalid:
            pass  # its container has not started
        except ApiError as error:
            self._lacks.tell(MACHINE, f"the log of {view.node} cannot be read from its machine: {error.message}")
            log.log.is_gone = True
        return log

    def _log_of(self, view: PodView) -> NodeLog:
        return NodeLog(self._client, self._record.namespace, view, self._query, self._kept, self._given)

    def _read_rest(self, spool: LogSpool, state: State, absent: AbsentNode, seen: dict[str, int]) -> None:
        """Read the log of a node whose pod is gone from its copies."""
        part = spool.part(absent.number, absent.node)
        kind = GONE
        try:
            lines, notice = self._kept.rest(absent.number, absent.node, seen, state)
            for batch in in_batches(lines):
                part.put(self._given.new(COPIES, absent.number, batch))
        except LongboatError as error:
            kind, notice = KEPT, f"the log of {absent.node} cannot be read from the storage: {error.message}"
        part.flush()
        if notice:
            self._lacks.tell(kind, notice)

    def _is_wanted_in(self, role: str, index: int, absent: AbsentNode, state: State) -> bool:
        """Whether the pods of an attempt have one that is asked for."""
        numbers = (absent.attempt, *state.restarted_in(absent.attempt))
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
        return self._logs.get(view.uid) or self._log_of(view)

    def vanished(self, live: LiveLogs) -> Iterator[LogLine]:
        """The end of the logs of pods that were deleted while they were followed."""
        notices: set[str] = set()
        for log in live.unfinished:
            for number, node, seen in self._seen_of(log):
                try:
                    lines, notice = self._kept.rest(number, node, seen, live.state)
                    mark = "" if number == log.attempt else f"@{number}"
                    marked = (line._replace(key=line.key + mark) for line in lines)
                    new = self._given.new(COPIES, log.attempt, marked)
                    yield from merged([self._line(line, log) for line in log.log.unshown(new)], self._query)
                except LongboatError as error:
                    notice = f"the end of the log of {log.node} cannot be read from the storage: {error.message}"
                if notice and notice not in notices:
                    notices.add(notice)
                    self._notice(notice)

    def _seen_of(self, log: NodeLog) -> Iterator[tuple[int, str, dict[str, int]]]:
        """What was seen of a pod's log: by attempt, with the node that it played there. Without a storage all of it is
        looked for at once. Of a successor without ranks nothing: what copies have is of the pod before it."""
        if log.is_successor and not any(place_of(key)[0] >= 0 for key in log.log.seen):
            return
        if self._record.storage is None:
            yield log.attempt, log.node, log.log.seen
            return
        by_number: dict[int, dict[str, int]] = {}
        for key, count in log.log.seen.items():
            by_number.setdefault(_number_of(key, log.attempt), {})[split_key(key)[0]] = count
        ranks = {number: [rank for rank, _ in map(place_of, seen) if rank >= 0] for number, seen in by_number.items()}
        for number, seen in sorted(by_number.items()) or [(log.attempt, {})]:
            if ranks.get(number) or not any(ranks.values()):  # of an attempt before it came another pod has the log
                node = self._node_of(ranks[number][0]) if self._record.job.spares and ranks.get(number) else None
                yield number, node or log.node, seen

    def _line(self, line: PodLine, log: NodeLog) -> LogLine:
        return of_its_node(to_log_line(line, role=log.role, node=log.node, attempt=log.attempt), self._record.job)

    # where else lines are

    def _in_pod(self, pod: str) -> FileReader:
        from longboat.engines.kubernetes.exec.pod_exec import Remote

        return Remote(self._client, self._record.namespace, pod)

    def _make_helper_pod(self) -> FileReader:
        from longboat.engines.kubernetes.exec.helper_pod import HelperPod

        return self._lasting.enter_context(HelperPod.of_run(self._client, self._record, [STORAGE]))


def _number_of(key: str, attempt: int) -> int:
    """The attempt that a stream is of; `attempt`: of its pod's objects."""
    number = split_key(key)[1]
    return attempt if number is None else number


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
