"""Log of one node of one attempt, kept while a run is looked at: a second reading goes on where the first ended.

Not here: how its pod's log is read (`pod_reader`), and from where (`pod_source`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.logs.lines import PodLine, place_of, split_key
from longboat.engines.kubernetes.logs.pod_reader import PodLog
from longboat.engines.kubernetes.logs.pod_source import PodLogSource
from longboat.engines.kubernetes.logs.sources import LogSources
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.kubeapi.client import Client

COPIES = ""
"""Who gives lines of pods that are gone, or cannot be read to their end."""


class GivenLines:
    """Lines of ranks that were given, by whichever pod or copy: each is given once. For several threads.

    The ranks of a node run in one pod in an attempt; a copy that is read for another pod of the node may have them too.
    What is not a rank's is each pod's own.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[int, str], int] = {}
        self._givers: dict[tuple[int, str], str] = {}
        self._lock = threading.Lock()

    def new(self, giver: str, attempt: int, lines: Iterable[PodLine]) -> list[PodLine]:
        """Those that are new. `giver`: uid of the pod that is read, or COPIES. `attempt`: of its objects."""
        with self._lock:
            return [line for line in lines if self._is_new(giver, attempt, line)]

    def _is_new(self, giver: str, attempt: int, line: PodLine) -> bool:
        place = _place_of_rank(attempt, line.key)
        if place is None or line.seq < 0:
            return True
        if giver != COPIES and self._givers.setdefault(place, giver) != giver:
            return False
        if line.seq < self._next.get(place, 0):
            return False
        if line.start < 0:  # of a piece the line follows whole
            self._next[place] = line.seq + 1
        return True

    def forget(self, giver: str) -> None:
        """Lines of a pod that is read again from its beginning."""
        with self._lock:
            for place in [place for place, known in self._givers.items() if known == giver]:
                del self._givers[place]
                self._next.pop(place, None)


@lru_cache(maxsize=4096)
def _place_of_rank(attempt: int, key: str) -> tuple[int, str] | None:
    """Attempt and stream of a rank's lines; None: they are not a rank's."""
    stream, number = split_key(key)
    return (attempt if number is None else number, stream) if stream[:1].isdecimal() else None


class NodeLog:
    """A node of an attempt with the reader of its log (`log`) and the reader's source (`source`)."""

    def __init__(
        self, client: Client, namespace: str, pod: PodView, query: LogQuery, copies: LogSources, given: GivenLines
    ) -> None:
        self.uid = pod.uid
        self.is_successor = pod.successor > 0
        self._given = given
        self.role = pod.role
        self.node = pod.node
        self.attempt = pod.attempt
        self.source = PodLogSource(client, namespace, pod, query, copies)
        is_whole = bool(query.grep) or (query.follow and not query.pieces)
        pieces_since = None if is_whole else query.since or 0.0
        self.log = PodLog(self.source, time=pod.started or pod.created, pieces_since=pieces_since)

    def read(self, *, follow: bool) -> Iterator[list[PodLine]]:
        for batch in self._read(follow=follow):
            yield self._given.new(self.uid, self.attempt, batch)

    def _read(self, *, follow: bool) -> Iterator[list[PodLine]]:
        if not follow or self.source.may_be_rotated:
            # What is there first: only then it is known whether something is missing before it.
            yield from self.log.read(follow=False, is_over=self.source.is_over)
        if follow and not self.log.is_gone:
            yield from self.log.read(follow=True, is_over=self.source.is_over)

    def stop(self) -> None:
        """End a reading from another thread."""
        self.log.stop()

    def ranks(self, own: Iterable[int]) -> set[int]:
        """The ranks that it may have lines of: its own, and those of a node that it took over as a spare."""
        keys = {*self.log.seen, *(self.source.line_counts or {}), *(gap.key for gap in self.source.gaps)}
        return {*own, *(rank for rank, _ in map(place_of, keys) if rank >= 0)}

    def lacks(self, rank: int, tail: int) -> bool:
        """Whether the last lines of this rank may reach back into what the pod's log no longer has."""
        source, seen = self.source, self.log.seen
        after_gap = {gap.key: gap.first + gap.missing for gap in source.gaps}
        have = sum(count - after_gap.get(key, 0) for key, count in seen.items() if place_of(key)[0] == rank)
        if source.line_counts is not None:
            written = sum(count for key, count in source.line_counts.items() if place_of(key)[0] == rank)
            return have < min(tail, written)
        return have < tail and (bool(source.gaps) or (not seen and source.may_lack_all()))
