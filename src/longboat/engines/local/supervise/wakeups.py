"""How a supervisor waits and what it stores meanwhile: a FIFO that commands write to, and SIGCHLD; the run's state."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from longboat.core.errors import EngineError
from longboat.engines.local.records import LocalState, replace
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.files import disk, log_line

TICK_S = 2.0
"""As often as launchers write their heartbeat; whatever is urgent wakes the supervisor."""


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


class StoppedBeforeStart(Exception):
    """The user asked the run to stop before its ranks had started."""


class StateKeeper:
    """The state of a run in the hands of its only writer: stored at each change, and how he waits meanwhile."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self.state: LocalState = files.state(is_alone=True)
        self._wakeups = Wakeups(files)
        self._is_saved = True
        self._is_promised = True  # what has to survive a power loss is synced

    def _pause(self, timeout_s: float) -> None:
        """Wait for the next wake-up, and store the state if that failed before."""
        self._wakeups.wait(min(timeout_s, TICK_S))
        if not self._is_saved:
            self._save()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._raise_if_stopped()
            self._pause(left)

    def _raise_if_stopped(self) -> None:
        if self.files.stop_request() is not None:
            raise StoppedBeforeStart

    def _save(self, *, is_durable: bool = False, **changes: object) -> None:
        """Store the new state; durable where the attempts or the end of the run have changed.

        A full disk does not end a training: it is stored as soon as that is possible.
        """
        self.state = replace(self.state, serial=self.state.serial + 1, **changes)
        self._is_promised = self._is_promised and not is_durable
        try:
            if self._is_promised:
                self.files.write_progress(self.state)
            else:
                self.files.write_state(self.state)
            self._is_saved = self._is_promised = True
        except EngineError as error:
            self._is_saved = self.state.is_final and self.files.overwrite_progress(self.state)
            log_line(error.message)
