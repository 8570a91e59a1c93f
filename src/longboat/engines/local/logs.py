"""The logs of a run on this machine: the log files of its attempts, merged into one order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

from longboat.core.runs import LogLine, LogQuery
from longboat.engines.shared.logfiles import Reader, last_lines, sources

__all__ = ["LogFileFollower", "last_lines"]


class LogFileFollower:
    """Follows all logs of a run. `lines` gives what is new, merged by time."""

    def __init__(self, directory: Path, query: LogQuery) -> None:
        self._directory = directory
        self._query = query
        self._readers: dict[str, Reader] = {}

    def lines(self, attempts: list[int], *, is_last: bool) -> Iterator[LogLine]:
        """New lines of these attempts, the earlier attempt's first. `is_last`: nobody writes any more."""
        for attempt in attempts:
            if self._query.attempt not in (None, attempt):
                continue
            ended = is_last or attempt != attempts[-1]
            readers = self._readers_of(attempt)
            yield from heapq.merge(*(reader.lines(is_last=ended) for reader in readers), key=lambda line: line.time)

    def _readers_of(self, attempt: int) -> list[Reader]:
        chosen = []
        for source in sources(self._directory / "attempts" / str(attempt), attempt, self._query):
            reader = self._readers.get(source.path)
            if reader is None:
                reader = self._readers[source.path] = Reader(source, self._query)
                reader.skip_to(self._query)
            chosen.append(reader)
        return chosen
