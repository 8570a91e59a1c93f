"""Thread pool that all who need one at the same time share, so that many callers do not start many threads each."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


class SharedPool:
    """`borrowed` by several threads at once, they have the same pool; its threads end with the last of them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._users = 0
        self._process = os.getpid()

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[ThreadPoolExecutor]:
        if self._process != os.getpid():  # a fork has none of its parent's threads
            self.__init__(self._threads)  # type: ignore[misc]
        with self._lock:
            pool = self._pool = self._pool or ThreadPoolExecutor(self._threads, thread_name_prefix="capabilities")
            self._users += 1
        try:
            yield pool
        finally:
            with self._lock:
                self._users -= 1
                is_last = not self._users
                self._pool = None if is_last else self._pool
            if is_last:
                pool.shutdown()
