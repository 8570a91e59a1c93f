"""Parallel map: one function over many items in a few threads, for work that waits for a disk. What computes is done in
one.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")

AT_ONCE = 8
"""A disk answers several reads at once, and a journal commits all waiting files together. The lock of the interpreter
is free while a thread waits, so they cost no more CPU than one after the other."""
_JUDGED_S = 0.02  # before, one slow answer would decide
_FEW = 4  # below this, threads cost more than they save
_WAITS = 0.5
"""Share of the time without CPU from which on threads are worth it. With files in memory there is nearly none, and
threads that hand the interpreter's lock to each other at every call take two to three times as long as one."""


def for_each(items: Iterable[Item], work: Callable[[Item], None], *, if_slow: bool = False) -> None:
    """Call `work` with every item, in any order. Raises the first failure, after those under way have ended.

    `if_slow`: the first items are done by this thread, and the others too as long as it waits for little.
    """
    left = list(items)
    left.reverse()  # taken from the end: the first is the first to be begun
    if if_slow:
        _until_slow(left, work)
    if len(left) <= _FEW:
        while left:
            work(left.pop())
        return
    import threading

    failures: list[BaseException] = []

    def serve() -> None:
        while not failures:
            try:
                item = left.pop()
            except IndexError:
                return
            try:
                work(item)
            except BaseException as error:
                failures.append(error)

    threads: list[threading.Thread] = []
    for _ in range(min(AT_ONCE, len(left)) - 1):
        thread = threading.Thread(target=serve, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            break  # no more threads are allowed here: this one and those that run do the work
        threads.append(thread)
    serve()
    while threads:
        try:
            threads[-1].join()
            threads.pop()
        except BaseException as error:  # interrupted: nothing may be written any more once this has returned
            failures.append(error)
    if failures:
        raise failures[0]


def _until_slow(left: list[Item], work: Callable[[Item], None]) -> None:
    """Do items until they turn out to wait for most of their time; none are left where they never do."""
    wall, cpu = time.perf_counter(), time.thread_time()
    while left:
        work(left.pop())
        spent = time.perf_counter() - wall
        if spent > _JUDGED_S and time.thread_time() - cpu < (1 - _WAITS) * spent:
            return
