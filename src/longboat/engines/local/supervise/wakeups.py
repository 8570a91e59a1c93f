"""Wake-ups of a supervisor: a FIFO that commands write to, and SIGCHLD. One select waits for both."""

from __future__ import annotations

import contextlib
import os
import select
import signal

from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.files import disk


def wake(files: RunFiles) -> None:
    """Make the run's supervisor look at its files now."""
    with contextlib.suppress(OSError):
        descriptor = os.open(files.wake, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)


class Wakeups:
    """Wake-ups of this process, the supervisor of one run."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._descriptors = [self._open_fifo(), _catch_children()]

    def wait(self, timeout_s: float) -> None:
        """Wait until a child ends, a command wakes us, or the timeout."""
        ready, _, _ = select.select(self._descriptors, [], [], timeout_s)
        for descriptor in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(descriptor, 4096)

    def close(self) -> None:
        """Remove the FIFO at the end of the run."""
        self._files.wake.unlink(missing_ok=True)

    def _open_fifo(self) -> int:
        self._files.wake.unlink(missing_ok=True)
        with disk(f"create {self._files.wake}"):
            os.mkfifo(self._files.wake, 0o600)
            return os.open(self._files.wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _catch_children() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader
