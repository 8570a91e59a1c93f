"""A node's log files as one stream of lines for an attached reader: `--logs FOLDER SEEN [follow]`, run beside the node.

A container's own log is rotated by the kubelet, which shows a reader only the newest file. The launcher's files are
whole, so a reader that is behind takes the lines from here, in the form of the pod's log (`ranks.pod_log`). SEEN is a
JSON object: for each stream (`0.out`) how many lines the reader has. With `follow` it goes on until the node has ended.

A reader that follows holds a lock on a file of its own below FOLDER/readers. `wait_for_readers` is the launcher's side:
an ended node stays until its readers have everything, for a bounded time.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time

from ..node import processes
from ..node.jsonfiles import read_json
from ..ranks.pod_log import PodLogWriter, _PodSource
from ..ranks.streams import RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..ranks.state import LauncherState

READERS = "readers"
COMPLETE = "logs-complete"
"""Written when nothing will be added to the logs any more."""
EXIT_USAGE, EXIT_NOT_FOUND = 201, 202
START_S = 10.0
"""A container runs before its launcher has made its folders: tens of milliseconds, seconds on a busy node."""
IDLE_S = 0.1
"""Between two looks at files that had nothing new: a person does not notice it, and it costs next to nothing."""
MOST_PIECE = 1 << 22
"""Of an unfinished line that a reader begins with: a progress bar writes this in hours."""
ALIVE_S = 5.0
"""After so long without a line an empty one is written: a reader that has gone is noticed, and this process ends."""
STUCK_S = 30.0
"""A reader that has taken nothing for so long is not waited for: its terminal is paused, or its machine asleep."""
HURRY_S = 5.0
"""After a stop, or when the pod is taken away, readers have only so long."""


class _Log:
    """A log file written by another process, with line times from its index."""

    def __init__(self, path: str) -> None:
        self.log = path
        self.is_whole = False  # nobody writes any more: what has no time yet counts too
        self._fd = os.open(path, os.O_RDONLY)
        self._index = os.open(path + ".idx", os.O_RDONLY)

    @property
    def end(self) -> int:
        size = os.fstat(self._fd).st_size
        if self.is_whole:
            return size
        records = os.fstat(self._index).st_size // RECORD.size
        if not records:
            return 0
        last = os.pread(self._index, RECORD.size, (records - 1) * RECORD.size)
        return min(size, int(RECORD.unpack(last)[0]))

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._fd, max(0, min(count, self.end - offset)), offset)


class _FileSource(_PodSource):
    """A log from the first line that the reader lacks."""

    def __init__(self, log: Any, seen: int) -> None:
        _PodSource.__init__(self, log)
        self.sent = self.scanned = 0
        self._skip(seen)

    def _skip(self, lines: int) -> None:
        while self.seq < lines:
            block = self.stream.read(self.sent, 1 << 20)
            count = block.count(b"\n")
            if self.seq + count <= lines:
                at = block.rfind(b"\n") + 1 if count else len(block)
            else:
                at, count = 0, lines - self.seq
                for _ in range(count):
                    at = block.index(b"\n", at) + 1
            if not block:
                break  # the reader has more than the file: nothing is told twice
            self.sent += at
            self.seq += count
        self.seq = max(self.seq, lines)
        self.scanned = self.sent


class LogFeed(PodLogWriter):
    """All logs of a folder, streamed to a descriptor at the reader's pace."""

    def __init__(self, folder: str, seen: dict[str, int], descriptor: int) -> None:
        PodLogWriter.__init__(self, None, descriptor, is_pod=True)  # type: ignore[arg-type]
        self._folder = os.path.join(folder, "logs")
        self._seen = seen
        self._known: set[str] = set()

    def find(self) -> None:
        """Add logs that have appeared."""
        for name in sorted(os.listdir(self._folder)):
            if name not in self._known and _is_log(name):
                path = os.path.join(self._folder, name)
                if os.path.exists(path + ".idx"):
                    self._known.add(name)
                    source = _FileSource(_Log(path), int(self._seen.get(name, 0)))
                    source.most_piece = MOST_PIECE
                    self._sources.append(source)

    def _wake_after(self, seconds: float) -> None:
        """Do nothing: the feed polls."""

    def close_files(self) -> None:
        """Treat lines without newline as complete: nobody writes any more."""
        self._last = True
        for source in self._sources:
            source.stream.is_whole = True  # type: ignore[attr-defined]

    def send(self) -> int:
        """Send all available lines. Returns the number of bytes; blocks while the reader does not read."""
        sent = 0
        while self._pending or self._fill():
            view = memoryview(self._pending)
            self._pending = b""
            while view:
                count = os.write(self._fd, view)
                view = view[count:]
                sent += count
                beat()
        return sent


def _is_log(name: str) -> bool:
    """Whether this is a log: `0.out`, or of a later attempt in the same pod `0.out@1`; not its index."""
    return not name.endswith(".idx") and name.partition("@")[0].endswith((".out", ".err"))


_lock: list[int] = []


def beat() -> None:
    """Record that the reader has made progress."""
    for descriptor in _lock:
        os.utime(descriptor)


def main(argv: list[str]) -> int:
    try:
        folder, seen = argv[1], _seen(argv[2])
        follow = argv[3:] == ["follow"]
    except (IndexError, ValueError, AttributeError):
        sys.stderr.write("usage: launcher --logs FOLDER SEEN [follow]\n")
        return EXIT_USAGE
    if not _has_begun(folder, START_S if follow else 0.0):
        sys.stderr.write("longboat launcher: no launcher runs in %s\n" % folder)
        return EXIT_NOT_FOUND
    feed = LogFeed(folder, seen, 1)
    try:
        if follow:
            _attach(folder)
            _follow(feed, folder)
        else:
            feed.find()
            feed.send()
    except BrokenPipeError:
        pass
    return 0


def _has_begun(folder: str, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while not os.path.isdir(os.path.join(folder, "logs")):
        if time.monotonic() >= until:
            return False
        time.sleep(IDLE_S)
    return True


def _seen(text: str) -> dict[str, int]:
    from json import loads

    return {str(name): int(count) for name, count in loads(text).items()}


def _attach(folder: str) -> None:
    place = os.path.join(folder, READERS)
    os.makedirs(place, exist_ok=True)
    descriptor = os.open(os.path.join(place, str(os.getpid())), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    _lock.append(descriptor)


def _follow(feed: LogFeed, folder: str) -> None:
    reported = time.monotonic()
    while True:
        is_complete = _is_complete(folder)  # before the files are read: what came later is read in the next round
        feed.find()
        if is_complete:
            feed.close_files()
        if feed.send():
            reported = time.monotonic()
        elif is_complete:
            return
        else:
            if time.monotonic() - reported > ALIVE_S:
                os.write(1, b"\n")
                reported = time.monotonic()
            time.sleep(IDLE_S)


def _is_complete(folder: str) -> bool:
    if os.path.exists(os.path.join(folder, COMPLETE)):
        return True
    try:
        launcher = read_json(os.path.join(folder, "launcher.json"))
        return bool(launcher.get("start_ticks") != processes.start_ticks(int(launcher["pid"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # it has not begun


def wait_for_readers(state: LauncherState) -> None:
    """Wait until every attached reader has the complete logs, up to a limit."""
    try:
        with open(state.path(COMPLETE), "wb"):
            pass
    except OSError:
        return  # the disk is full: readers would wait for an end that they are never told
    began = time.monotonic()
    while True:
        newest = _newest_beat(state.path(READERS))
        if newest is None or time.time() - newest > STUCK_S:
            return
        is_hurried = state.ending is not None and state.ending.by in ("stop", "evicted")
        if time.monotonic() - began > (min(HURRY_S, state.plan.log_wait_s) if is_hurried else state.plan.log_wait_s):
            return
        state.loop.after("readers", IDLE_S, lambda: None)
        state.loop.turn()


def _newest_beat(folder: str) -> float | None:
    """When a live reader last made progress; None: there is none."""
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    times: list[float] = []
    for name in names:
        path = os.path.join(folder, name)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)  # it is done, or dead
        except BlockingIOError:
            times.append(os.fstat(descriptor).st_mtime)
        finally:
            os.close(descriptor)
    return max(times) if times else None
