"""The log of one node of one attempt: its pod's log, and what else there is of it. One reader for each, kept while a
run is looked at, so that a second reading goes on where the first ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.api.client import Client
from longboat.engines.kubernetes.api.kinds import POD
from longboat.engines.kubernetes.api.transport import Stream
from longboat.engines.kubernetes.kept import Kept
from longboat.engines.kubernetes.podlines import Gap, PodLine, place_of
from longboat.engines.kubernetes.podlog import PodLog
from longboat.engines.kubernetes.termination import container_of
from longboat.engines.kubernetes.views import PodView

SILENCE_S = 120.0
"""A stream that is silent for longer is opened again: it may be dead without anybody knowing."""
ROTATED_S = 9.0
"""The kubelet looks at the sizes of logs every 10 s: that of a younger container is whole."""


class NodeLog:
    """`query` says which gaps need filling: what was before `since`, nobody asked for."""

    def __init__(self, client: Client, namespace: str, pod: PodView, query: LogQuery, kept: Kept) -> None:
        self.role = pod.role
        self.node = pod.node
        self.attempt = pod.attempt
        self.pod = pod.name
        self.is_over = pod.end is not None
        self.gaps: list[Gap] = []
        self.fills = True
        ended = pod.end.ended if pod.end is not None and pod.end.ended is not None else client.now()
        self.is_old = ended - (pod.started or pod.created) > ROTATED_S
        self._client = client
        self._namespace = namespace
        self._query = query
        self._kept = kept
        self._stop = threading.Event()
        self._stream: Stream | None = None
        self._followed: Stream | None = None
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
        if self._stream is not None:
            self._stream.close()

    def conclude(self) -> None:
        """The container has ended: what is left is read at once. A stream that follows would end up to 1 s later."""
        followed, self._followed = self._followed, None
        if followed is not None:
            followed.close()

    def lacks(self, rank: int, tail: int) -> bool:
        """Whether the last lines of this rank may reach back into what the pod's log no longer has."""
        if not self.gaps and (self.log.seen or not self.is_old):
            return False
        last = {gap.key: gap.first + gap.missing for gap in self.gaps}
        mine = [key for key in self.log.seen if place_of(key)[0] == rank]
        return sum(self.log.seen[key] - last.get(key, 0) for key in mine) < tail

    def open(self, *, follow: bool, since: float | None) -> closing[Stream]:
        moment = None if since is None else f"{datetime.fromtimestamp(int(since), timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        self._stream = self._client.log(
            self.pod, namespace=self._namespace, follow=follow, since_time=moment, idle_s=SILENCE_S if follow else None
        )
        self._followed = self._stream if follow else None
        if self._stop.is_set():
            self._stream.close()
        return closing(self._stream)

    def has_ended(self) -> bool:
        pod = self._client.get(POD, self.pod, namespace=self._namespace)
        container = container_of(pod)
        self.is_over = bool(container and (container.get("state") or {}).get("terminated")) or (
            (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        )
        return self.is_over

    def fill(self, gap: Gap) -> Iterator[PodLine]:
        self.gaps.append(gap)
        if not self.fills or (self._query.since is not None and gap.time < self._query.since):
            return iter(())
        return self._kept.fill(gap, self.attempt, self.node, None if self.is_over else self.pod)

    def rest(self, seen: dict[str, int]) -> Iterator[PodLine]:
        if not self.fills or not self.is_old:
            return iter(())
        return self._kept.others(seen, self.attempt, self.node, None if self.is_over else self.pod)
