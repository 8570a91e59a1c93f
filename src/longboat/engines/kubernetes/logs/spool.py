"""Spool of logs read from pods: a temporary folder in the launcher's own log format, for one reading.

So a finished log of any size is merged by the same reader that reads a run of this machine, without being held in
memory. The folder goes with the spool.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from longboat.bundles.disk import errors_explained, write_all
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.kubernetes.logs.lines import FOREIGN, PodLine, split_key
from longboat.engines.shared.logfiles import Reader, Source, sources

NodeOf = Callable[[int], "str | None"]
_RECORD = struct.Struct("<QQ")
_HELD = 4 << 20
_FEW = 200
STRANGER = "stranger.err"
"""The file of lines that are not the launcher's."""


class _File:
    __slots__ = ("data", "end", "index", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = bytearray()
        self.index = bytearray()
        self.end = 0


class LogSpool:
    """Not for several threads at once, unless each writes nodes of its own and `part` is theirs."""

    def __init__(self, most_attempts: int = 0, node_of: NodeOf | None = None) -> None:
        """`most_attempts`: the highest number of one; what a pod marks with another is taken for its own.
        `node_of`: the node of a rank, where pods play others than their own."""
        self._most_attempts = most_attempts
        self._node_of = node_of
        self._files: dict[Path, _File] = {}  # a node may have had several pods, and copies
        with errors_explained(tempfile.gettempdir()):
            self.folder = Path(tempfile.mkdtemp(prefix="longboat-logs-"))

    def __enter__(self) -> LogSpool:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def part(self, attempt: int, node: str) -> SpooledNode:
        """The part of the spool for one node's logs."""
        folder = self.folder / str(attempt) / node / "logs"
        with errors_explained(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
        return SpooledNode(folder, self._file, self._most_attempts, self._node_of)

    def _file(self, path: Path) -> _File:
        return self._files.setdefault(path, _File(path))

    def attempts(self) -> list[int]:
        return sorted(int(entry.name) for entry in self.folder.iterdir() if entry.name.isdecimal())

    def lines(self, query: LogQuery) -> Iterator[LogLine]:
        """All lines the query wants but for `tail`: attempts in order, merged by time, each rank's own order kept."""
        for attempt in self.attempts():
            if query.attempt not in (None, attempt):
                continue
            log_sources = sources(self.folder / str(attempt), attempt, query)
            _allow_open_files(len(log_sources))
            readers = [_reader(source, query) for source in log_sources]
            for line in heapq.merge(*(reader.lines(is_last=True) for reader in readers), key=lambda line: line.time):
                # The reader keeps a last line without newline, which somebody might go on with; here nobody does.
                if (query.since is None or line.time >= query.since) and (
                    query.until is None or line.time <= query.until
                ):
                    yield line


def _reader(source: Source, query: LogQuery) -> Reader:
    reader = Reader(source, query)
    reader.skip_to(query)
    return reader


def _allow_open_files(wanted: int) -> None:
    """Every log is open while they are merged; most systems allow more than they give by themselves."""
    if wanted < _FEW:
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _FEW
    if soft != resource.RLIM_INFINITY and soft < needed:
        with contextlib.suppress(OSError, ValueError):
            most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class SpooledNode:
    """The logs of one node's pod, each attempt's in the folder of that attempt."""

    def __init__(
        self,
        folder: Path,
        file_at: Callable[[Path], _File],
        most_attempts: int = 0,
        node_of: NodeOf | None = None,
    ) -> None:
        self.folder = folder
        self._file_at = file_at
        self._node_of = node_of
        self._most_attempts = most_attempts
        self._files: dict[str, _File] = {}
        self._held = 0

    def put(self, lines: Iterable[PodLine]) -> None:
        for line in lines:
            file = self._files.get(line.key)
            if file is None:
                file = self._files[line.key] = self._file_at(self._path_of(line.key))
            file.data += line.data
            file.end += len(line.data)
            file.index += _RECORD.pack(file.end, max(0, int(line.time * 1e9)))
            self._held += len(line.data) + _RECORD.size
        if self._held > _HELD:
            self.flush()

    def flush(self) -> None:
        with errors_explained(str(self.folder)):
            for file in self._files.values():
                if file.data:
                    append(file.path, file.data)
                    append(Path(f"{file.path}.idx"), file.index)
                    file.data, file.index = bytearray(), bytearray()
        self._held = 0

    def _path_of(self, key: str) -> Path:
        stream, number = split_key(key)
        place, attempt = self.folder, int(self.folder.parts[-3])
        if number is not None and attempt < number <= self._most_attempts:
            rank = stream.partition(".")[0]
            node = self._node_of(int(rank)) if self._node_of is not None and rank.isdigit() else None
            place = self.folder.parents[2] / str(number) / (node or self.folder.parts[-2]) / "logs"
            with errors_explained(str(place)):
                place.mkdir(parents=True, exist_ok=True)
            if not stream[0].isdecimal():  # an attempt that did not come together in this pod has another pod too
                stream = f"{stream.partition('.')[0]}-{attempt}.{stream.partition('.')[2]}"
        return place / (STRANGER if key == FOREIGN else stream)

    def clear(self) -> None:
        """Forget all of it, to read it again."""
        for file in self._files.values():
            file.data, file.index, file.end = bytearray(), bytearray(), 0
            for name in (file.path, Path(f"{file.path}.idx")):
                name.unlink(missing_ok=True)
        self._files.clear()
        self._held = 0


def append(path: Path, data: bytes | bytearray) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
