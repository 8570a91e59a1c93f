"""What happens to steps on hosts, as events for whoever shows them, and the failures in the end. Safe for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from longboat.clusters.hosts.connection import CommandFailed
from longboat.core.errors import LongboatError
from longboat.core.jobs import Value

STEPS_FILE = "steps.jsonl"
"""In the folder of a cluster's logs: the events of its last command, for whoever looks from elsewhere."""
StepState = Literal["started", "line", "waiting", "done", "failed", "skipped"]


class StepEvent(Value, frozen=True):
    """A change of a step's state, for the progress table, the log file and `-o json`."""

    host: str
    step: str
    state: StepState
    text: str = ""
    seconds: float = 0.0


Listener = Callable[[StepEvent], None]


class StepFailure(Value, frozen=True):
    host: str
    step: str
    message: str
    last_lines: tuple[str, ...] = ()
    hint: str = ""


class StepLog:
    def __init__(self, listen: Listener) -> None:
        self.failures: list[StepFailure] = []
        self._listen = listen
        self._lock = threading.Lock()

    def tell(self, host: str, step: str, state: StepState, text: str = "", *, seconds: float = 0.0) -> None:
        with self._lock:
            self._listen(StepEvent(host=host, step=step, state=state, text=text, seconds=seconds))

    def attempt(self, host: str, step: str, work: Callable[[], None], *, title: str = "") -> bool:
        """Do a step and report its result. A LongboatError is a failure of this step; any other is raised."""
        began = time.monotonic()
        self.tell(host, step, "started", title)
        try:
            work()
        except LongboatError as error:
            lines = error.last_lines if isinstance(error, CommandFailed) else ()
            message = error.message.removeprefix(f"{host}: ")
            with self._lock:
                failure = StepFailure(host=host, step=step, message=message, last_lines=lines, hint=error.hint or "")
                self.failures.append(failure)
            self.tell(host, step, "failed", message, seconds=time.monotonic() - began)
            return False
        self.tell(host, step, "done", seconds=time.monotonic() - began)
        return True
