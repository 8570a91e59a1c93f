"""One function over many items in a few threads, for work that waits for a disk. Not for work that computes.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")

AT_ONCE = 8
"""A disk answers several reads at once, and a journal commits all waiting files together. The lock of the interpreter
is free while a thread waits, so they cost no more CPU than one after the other."""
_FEW = 4  # below this, threads cost more than they save


def for_each(items: Iterable[Item], work: Callable[[Item], None]) -> None:
    """Call `work` with every item, in any order. Raises the first failure, after those under way have ended."""
    left = list(items)
    if len(left) <= _FEW:
        for item in left:
            work(item)
        return
    import threading

    left.reverse()  # taken from the end: the first is the first to be begun
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
