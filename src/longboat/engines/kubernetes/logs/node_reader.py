"""Log of one node of one attempt, kept while a run is looked at: a second reading goes on where the first ended.

Not here: how its pod's log is read (`pod_reader`), and from where (`pod_source`).
"""

from __future__ import annotations

from collections.abc import Iterator

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.logs.lines import PodLine, place_of
from longboat.engines.kubernetes.logs.pod_reader import PodLog
from longboat.engines.kubernetes.logs.pod_source import PodLogSource
from longboat.engines.kubernetes.logs.sources import LogSources
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.kubeapi.client import Client


class NodeLog:
    """A node of an attempt with the reader of its log (`log`) and the reader's source (`source`)."""

    def __init__(self, client: Client, namespace: str, pod: PodView, query: LogQuery, copies: LogSources) -> None:
        self.role = pod.role
        self.node = pod.node
        self.attempt = pod.attempt
        self.source = PodLogSource(client, namespace, pod, query, copies)
        is_whole = bool(query.grep) or (query.follow and not query.pieces)
        pieces_since = None if is_whole else query.since or 0.0
        self.log = PodLog(self.source, time=pod.started or pod.created, pieces_since=pieces_since)

    def read(self, *, follow: bool) -> Iterator[list[PodLine]]:
        if not follow or self.source.may_be_rotated:
            # What is there first: only then it is known whether something is missing before it.
            yield from self.log.read(follow=False, is_over=self.source.is_over)
        if follow and not self.log.is_gone:
            yield from self.log.read(follow=True, is_over=self.source.is_over)

    def stop(self) -> None:
        """End a reading from another thread."""
        self.log.stop()

    def lacks(self, rank: int, tail: int) -> bool:
        """Whether the last lines of this rank may reach back into what the pod's log no longer has."""
        source, seen = self.source, self.log.seen
        after_gap = {gap.key: gap.first + gap.missing for gap in source.gaps}
        have = sum(count - after_gap.get(key, 0) for key, count in seen.items() if place_of(key)[0] == rank)
        if source.line_counts is not None:
            written = sum(count for key, count in source.line_counts.items() if place_of(key)[0] == rank)
            return have < min(tail, written)
        return have < tail and (bool(source.gaps) or (not seen and source.may_lack_all()))
