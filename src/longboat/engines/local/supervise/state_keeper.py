"""The state of a run in the hands of its only writer: stored at each change, and how he waits meanwhile.

What it says is decided by the supervisor.
"""

from __future__ import annotations

import time

from longboat.core.errors import EngineError
from longboat.engines.local.records import LocalState, replace
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.wakeups import Wakeups
from longboat.engines.shared.files import log_line

TICK_S = 2.0
"""As often as launchers write their heartbeat; whatever is urgent wakes the supervisor."""


class StoppedBeforeStart(Exception):
    """The user asked the run to stop before its ranks had started."""


class StateKeeper:
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
            self._is_saved = False
            log_line(error.message)
