"""An event loop in a thread of its own, so that synchronous code can use asyncssh: everybody else calls and waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

T = TypeVar("T")
CLOSE_S = 15.0  # for ending scripts on hosts that still answer; more than one such end takes


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Schedule a coroutine in the loop's thread; a closed loop has cancelled it."""
        if self._loop.is_closed():
            work.close()
            raise CancelledError
        return asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop)

    def close(self, last: Callable[[], None]) -> None:
        """Cancel all submitted work, wait for its clean-up, then call `last` in the loop."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(FutureTimeout):
            asyncio.run_coroutine_threadsafe(self._end(last), self._loop).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    async def _end(self, last: Callable[[], None]) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S - 2)
        last()
        await asyncio.sleep(0.05)  # goodbyes are sent in later turns of the loop
