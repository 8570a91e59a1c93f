"""The log of one node of one attempt: its pod's log, and what else there is of it. One reader for each, kept while a
run is looked at, so that a second reading goes on where the first ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.logs.launcher_logs import LauncherLogs
from longboat.engines.kubernetes.logs.lines import LogGap, PodLine, place_of
from longboat.engines.kubernetes.logs.pod_reader import PodLog
from longboat.engines.kubernetes.logs.sources import LogSources, gap_line
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.engines.kubernetes.observe.termination import PodEnd, container_of, outcome_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import ResponseStream
from longboat.kubeapi.kinds import POD

READ_S = 30.0
"""What was written already comes at once; a machine that is cut off in the middle of it says nothing any more."""
SILENCE_S = 120.0
"""A stream that is silent for longer is opened again: it may be dead without anybody knowing."""
ROTATED_S = 9.0
"""The kubelet looks at the sizes of all logs every 10 s: that of a younger container may be rotated, but hardly is."""


class NodeLog:
    """`query` says which gaps need filling: what was before `since`, nobody asked for."""

    def __init__(self, client: Client, namespace: str, pod: PodView, query: LogQuery, kept: LogSources) -> None:
        self.role = pod.role
        self.node = pod.node
        self.attempt = pod.attempt
        self.pod = pod.name
        self.is_over = pod.end is not None
        self.lines = _lines_of(pod.end)
        self.gaps: list[LogGap] = []
        self.fills = True
        self._ended = pod.end.ended if pod.end is not None and pod.end.ended is not None else client.now()
        self._is_concluded = False  # what the log lacks at its end was looked for
        self.is_old = self._ended - (pod.started or pod.created) > ROTATED_S
        self._client = client
        self._namespace = namespace
        self._query = query
        self._kept = kept
        self._stop = threading.Event()
        self._files = LauncherLogs(client, namespace, pod.name)
        self._stream: ResponseStream | None = None
        self._followed: ResponseStream | None = None
        self.log = PodLog(self, time=pod.started or pod.created, stop=self._stop)

    def read(self, *, follow: bool) -> Iterator[list[PodLine]]:
        if not follow or self.is_old:
            # What is there first: only then it is known whether something is missing before it.
            yield from self.log.read(follow=False, is_over=self.is_over)
        if follow and not self.log.is_gone:
            yield from self.log.read(follow=True, is_over=self.is_over)

    def stop(self) -> None:
        """End a reading from another thread."""
        self._stop.set()
        self._files.close()
        if self._stream is not None:
            self._stream.close()

    def conclude(self) -> None:
        """The container has ended: what is left is read at once. A stream that follows would end up to 1 s later."""
        followed, self._followed = self._followed, None
        if followed is not None:
            followed.close()

    def lacks(self, rank: int, tail: int) -> bool:
        """Whether the last lines of this rank may reach back into what the pod's log no longer has."""
        last = {gap.key: gap.first + gap.missing for gap in self.gaps}
        mine = [key for key in self.log.seen if place_of(key)[0] == rank]
        have = sum(self.log.seen[key] - last.get(key, 0) for key in mine)
        if self.lines is not None:
            return have < min(tail, sum(count for key, count in self.lines.items() if place_of(key)[0] == rank))
        return have < tail and (bool(self.gaps) or (not self.log.seen and (self.is_old or not self.is_over)))

    def open(self, *, follow: bool, since: float | None) -> closing[ResponseStream]:
        moment = None if since is None else f"{datetime.fromtimestamp(int(since), timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        self._stream = self._client.log(
            self.pod,
            namespace=self._namespace,
            follow=follow,
            since_time=moment,
            idle_s=SILENCE_S if follow else READ_S,
        )
        self._followed = self._stream if follow else None
        if self._stop.is_set():
            self._stream.close()
        return closing(self._stream)

    def has_ended(self) -> bool:
        pod = self._client.get(POD, self.pod, namespace=self._namespace)
        end = outcome_of(container_of(pod) or {})
        self.is_over = end is not None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        self.lines = _lines_of(end)
        return self.is_over

    def has_files(self, gap: LogGap | None) -> bool:
        return self._files.is_usable and not self.is_over and (gap is None or self._is_wanted(gap))

    def files(self, seen: dict[str, int], *, follow: bool) -> Iterator[bytes]:
        return self._files.read(seen, follow=follow)

    def _is_wanted(self, gap: LogGap) -> bool:
        return self.fills and not (self._query.since is not None and gap.time < self._query.since)

    def fill(self, gap: LogGap) -> Iterator[PodLine]:
        self.gaps.append(gap)
        if not self._is_wanted(gap):
            return iter(())
        return self._kept.fill(gap, self.attempt, self.node, None if self.is_over else self.pod)

    def rest(self, seen: dict[str, int]) -> Iterator[PodLine]:
        if not self.fills:
            return iter(())
        return self._kept.others(seen, self.attempt, self.node, None if self.is_over else self.pod)

    def last(self, seen: dict[str, int]) -> Iterator[PodLine]:
        told_of = self.lines or {}
        is_short = any(seen.get(key, 0) < count for key, count in told_of.items())
        if self.lines is None:
            is_short = not seen and (self.is_old or not self.is_over)  # a pod that lives is asked at little cost
        if not is_short or self._is_concluded:
            return
        yield from self.rest(seen)
        self._is_concluded = self.fills and self.is_over
        for key, count in told_of.items():
            if self.fills and seen.get(key, 0) < count:
                yield gap_line(LogGap(key, seen.get(key, 0), count - seen.get(key, 0), self._ended))


def _lines_of(end: PodEnd | None) -> dict[str, int] | None:
    """How many lines each stream has, where the launcher said so with its last words."""
    return end.said.lines if end is not None and end.said is not None else None
