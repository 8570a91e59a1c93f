"""Background call: a function in a thread of its own, whose result or error is taken later.

For commands that a person waits for: concurrent.futures loads logging, which takes as long as a small list of runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="background-call", daemon=True)
        self._thread.start()

    def result(self) -> T:
        """What it returned, once it has. Raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # whoever asks for the result gets it
            self._error = error
