"""Sources of one pod's log: the API server, the launcher's own files, and copies kept elsewhere.

Not here: in which order they are asked (`pod_reader`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from longboat.core.runs import LogQuery
from longboat.core.times import format_time
from longboat.engines.kubernetes.logs.launcher_logs import LauncherLogs
from longboat.engines.kubernetes.logs.lines import LogGap, PodLine
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


class PodLogSource:
    """The PodSource of a pod of a cluster. `query` says which gaps need filling: what was before `since`, nobody asked
    for; nor for any while not `fills`."""

    def __init__(self, client: Client, namespace: str, pod: PodView, query: LogQuery, copies: LogSources) -> None:
        self.pod = pod.name
        self.is_over = pod.end is not None
        self.line_counts = _line_counts(pod.end)
        self.gaps: list[LogGap] = []
        self.fills = True
        self._node = pod.node
        self._attempt = pod.attempt
        self._ended = pod.end.ended if pod.end is not None and pod.end.ended is not None else client.now()
        self.may_be_rotated = self._ended - (pod.started or pod.created) > ROTATED_S
        self._is_concluded = False  # what the log lacks at its end was looked for
        self._client = client
        self._namespace = namespace
        self._query = query
        self._copies = copies
        self._files = LauncherLogs(client, namespace, pod.name)
        self._stream: ResponseStream | None = None
        self._followed: ResponseStream | None = None
        self._is_closed = False

    def open(self, *, follow: bool, since: float | None) -> closing[ResponseStream]:
        moment = None if since is None else format_time(since)
        self._stream = self._client.log(
            self.pod,
            namespace=self._namespace,
            follow=follow,
            since_time=moment,
            idle_s=SILENCE_S if follow else READ_S,
        )
        self._followed = self._stream if follow else None
        if self._is_closed:
            self._stream.close()
        return closing(self._stream)

    def close(self) -> None:
        self._is_closed = True
        self._files.close()
        if self._stream is not None:
            self._stream.close()

    def conclude(self) -> None:
        """The container has ended: what is left is read at once. A stream that follows would end up to 1 s later."""
        followed, self._followed = self._followed, None
        if followed is not None:
            followed.close()

    def has_ended(self) -> bool:
        pod = self._client.get(POD, self.pod, namespace=self._namespace)
        end = outcome_of(container_of(pod) or {})
        self.is_over = end is not None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        self.line_counts = _line_counts(end)
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
        return self._copies.fill(gap, self._attempt, self._node, None if self.is_over else self.pod)

    def rest(self, seen: dict[str, int]) -> Iterator[PodLine]:
        if not self.fills:
            return iter(())
        return self._copies.others(seen, self._attempt, self._node, None if self.is_over else self.pod)

    def last(self, seen: dict[str, int]) -> Iterator[PodLine]:
        counts = self.line_counts or {}
        seen.update({key: 0 for key in counts if key not in seen})
        is_short = any(seen.get(key, 0) < count for key, count in counts.items())
        if self.line_counts is None:
            is_short = not seen and self.may_lack_all()
        if not is_short or self._is_concluded:
            return
        # A copy may have streams of another pod of this node: only those are looked for that this one has told of.
        yield from (line for line in self.rest(seen) if not counts or line.key in counts)
        self._is_concluded = self.fills and self.is_over
        for key, count in counts.items():
            if self.fills and seen.get(key, 0) < count:
                yield gap_line(LogGap(key, seen.get(key, 0), count - seen.get(key, 0), self._ended))

    def may_lack_all(self) -> bool:
        """Whether a log without any line is worth a look elsewhere. A pod that lives is asked at little cost."""
        return self.may_be_rotated or not self.is_over


def _line_counts(end: PodEnd | None) -> dict[str, int] | None:
    """How many lines each stream has, where the launcher said so with its last words."""
    return end.said.lines if end is not None and end.said is not None else None
