"""An event loop in a thread of its own, so that synchronous code can use asyncssh: everybody else calls and waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

T = TypeVar("T")
CLOSE_S = 10.0  # goodbyes to hosts that do not answer any more are not waited for


class EventLoop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Callable[[], None]) -> None:
        """End everything that runs, then call `last` inside."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(FutureTimeout):
            self.submit(_cancel_all(last)).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_all(last: Callable[[], None]) -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    last()
    await asyncio.sleep(0)
