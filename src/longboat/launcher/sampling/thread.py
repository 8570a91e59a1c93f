"""The thread that samples a node. Only it loads the sampler: meanwhile the loop would read no output of ranks.

A driver or a disk that hangs holds up this thread, and no signal and no rank.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock, start_new_thread

from ..ranks.state import LauncherState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..ranks.ranks import Rank

FIRST_S = 1.0
"""A run that is shorter costs no thread."""
FINISH_S = 2.0
"""The end of the node waits no longer for a sampler that hangs in a driver."""


def start_sampling(state: LauncherState, trees: Callable[[], dict[Rank, list[int]]]) -> None:
    """Sample the ranks, which have just been started; `trees` gives the processes of each."""
    thread = SamplingThread(state, trees)
    state.stop_sampling = thread.finish
    state.loop.after("metrics", FIRST_S, thread.begin)


class SamplingThread:
    def __init__(self, state: LauncherState, trees: Callable[[], dict[Rank, list[int]]]) -> None:
        self._state = state
        self._trees = trees
        self._began = (time.monotonic(), time.time())
        self._stop = allocate_lock()  # held while the thread is to go on
        self._done = allocate_lock()  # held while it does
        self._is_begun = False

    def begin(self) -> None:
        self._is_begun = True
        self._stop.acquire()
        self._done.acquire()
        start_new_thread(self._work, ())

    def _work(self) -> None:
        try:
            self._sampler().run(self._stop)
        except Exception as error:  # a training goes on without metrics
            self._state.say("metrics are no longer sampled: %s: %s" % (type(error).__name__, error))
        finally:
            self._done.release()

    def _sampler(self) -> Any:
        from .sampler import Sampler

        return Sampler(self._state, self._trees, self._began)

    def finish(self, is_copied: bool) -> None:
        """Take the last numbers of ranks that have ended, and stop. `is_copied`: write them to the pod's log too."""
        state = self._state
        state.loop.cancel("metrics")
        if self._is_begun:
            self._stop.release()
            self._done.acquire(timeout=FINISH_S)
        elif any(os.path.exists(state.path("steps", "%d.series" % rank.rank)) for rank in state.ranks):
            self._sampler().take_steps(is_last=True)
        if is_copied and (state.plan.again is not None or os.path.exists(state.path("metrics.jsonl"))):
            from .log_copy import write_log_copy

            write_log_copy(state)
