"""One stream of one rank: from its named pipe into its log file and index, byte for byte but for secrets.

On Linux the kernel moves the bytes from the pipe into the file (splice): what is not in the file is still in the pipe,
so a launcher that is killed at any moment loses nothing that an engine with its own read end could not save. When the
disk is full the bytes stay in the pipe as well, and the rank waits. Where values of secrets are masked the bytes come
through here: what may be the beginning of one is held back until the rest has come.
"""

from __future__ import annotations

import os
import struct
import time

CHUNK = 1 << 20
_F_SETPIPE_SZ = 1031
_PIPE_BUDGET = 4 << 20
"""For all pipes of a node together: the kernel bounds the pipe memory of a user, 64 MiB by default."""
_SPLICE_NONBLOCK = 2  # of fcntl.h
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RECORD = struct.Struct("<QQ")


def pipe_size(streams: int) -> int:
    """The size of a pipe: large for few streams, the default for many, since the kernel limits the sum per user."""
    return min(CHUNK, _PIPE_BUDGET // max(1, streams))


class RankStream:
    """A pipe and its log. Also holds the write end, so that the pipe does not end before the launcher ends it."""

    def __init__(self, pipe: str, log: str, size: int, masker: Any = None) -> None:
        self.pipe = pipe
        self.log = log
        self.problem: str | None = None  # why nothing can be written at present
        self.last_ns = 0  # monotonic time of the latest bytes
        self.last_time = 0.0
        self._left = b""  # read, but not written yet: only where splice does not work
        self._masker = masker
        self._splices = hasattr(os, "splice") and masker is None
        _make_pipe(pipe)
        self.fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._held = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        _enlarge(self.fd, size)
        # Not O_APPEND: splice refuses such files.
        self._out = os.open(log, os.O_RDWR | os.O_CREAT, 0o644)
        self.end = os.lseek(self._out, 0, os.SEEK_END)
        self._index = os.open(log + ".idx", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def move(self) -> int:
        """Copy available output, at most CHUNK. Returns the bytes copied; 0: none, or see `problem`."""
        try:
            moved = self._splice() if self._splices else self._copy()
        except BlockingIOError:
            return 0
        except OSError as error:
            self.problem = error.strerror or str(error)
            return 0
        self.problem = None
        if moved:
            self._moved(moved)
        return moved

    def finish(self) -> None:
        """Write output that masking held back, when nobody writes any more."""
        if self._masker is not None:
            self._left += self._masker.finish()
            try:
                while self._left:
                    self._moved(self._copy())
            except OSError as error:
                self.problem = error.strerror

    def add_line(self, text: str) -> None:
        """Write a line of the launcher into the log. Best effort."""
        while self.move():
            pass
        try:
            self._moved(os.write(self._out, text.encode("utf-8", "replace") + b"\n"))
        except OSError as error:
            self.problem = error.strerror

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._out, count, offset)

    def tail(self, count: int) -> bytes:
        try:
            return self.read(max(0, self.end - count), count)
        except OSError:
            return b""

    def close(self) -> None:
        for descriptor in (self.fd, self._held, self._out, self._index):
            os.close(descriptor)

    def _moved(self, count: int) -> None:
        self.end += count
        self.last_ns = time.monotonic_ns()
        now = time.time_ns()
        self.last_time = now / 1e9
        try:
            os.write(self._index, RECORD.pack(self.end, now))
        except OSError as error:  # bytes without a record have the file's time; the data is safe
            self.problem = error.strerror

    def _splice(self) -> int:
        try:
            return os.splice(self.fd, self._out, CHUNK, flags=_SPLICE_NONBLOCK)  # type: ignore[attr-defined,no-any-return,unused-ignore]
        except OSError as error:
            if error.errno not in (22, 38, 95):  # EINVAL, ENOSYS, EOPNOTSUPP: this file system or kernel cannot
                raise
        self._splices = False
        return self._copy()

    def _copy(self) -> int:
        while not self._left:
            data = os.read(self.fd, CHUNK)
            self._left = data if self._masker is None else self._masker.feed(data)
        written = os.write(self._out, self._left)
        self._left = self._left[written:]
        return written


def _make_pipe(path: str) -> None:
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        pass


def _enlarge(descriptor: int, size: int) -> None:
    if size <= 65536:
        return
    try:
        import fcntl

        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, size)
    except (ImportError, OSError):
        pass
