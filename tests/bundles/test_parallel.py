from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from longboat.bundles import parallel
from longboat.bundles.parallel import AT_ONCE, for_each


@pytest.mark.parametrize("count", [0, 1, 4, 5, 1000])
def test_every_item_once(count: int) -> None:
    seen: list[int] = []
    for_each(range(count), seen.append)
    assert sorted(seen) == list(range(count))


def test_several_at_a_time() -> None:
    together = threading.Barrier(AT_ONCE)
    for_each(range(AT_ONCE), lambda _: together.wait(timeout=60) and None)


def test_a_failure_is_raised_and_nothing_more_is_begun() -> None:
    seen: list[int] = []

    def work(item: int) -> None:
        seen.append(item)
        raise OSError(f"item {item}")

    with pytest.raises(OSError, match="item"):
        for_each(range(1000), work)
    assert len(seen) <= AT_ONCE


@pytest.mark.parametrize(("cpu_share", "is_alone"), [(1.0, True), (0.6, True), (0.4, False), (0.0, False)])
def test_threads_are_for_work_that_waits(monkeypatch: pytest.MonkeyPatch, cpu_share: float, is_alone: bool) -> None:
    """By clocks of the test: each item takes 10 ms, of which a share is CPU."""
    seen: list[int] = []
    workers: set[int] = set()
    together = threading.Barrier(AT_ONCE)

    def work(item: int) -> None:
        seen.append(item)
        workers.add(threading.get_ident())
        if threading.active_count() > before and item > 90 and not is_alone:
            together.wait(timeout=60)

    before = threading.active_count()
    clocks = SimpleNamespace(perf_counter=lambda: 0.01 * len(seen), thread_time=lambda: 0.01 * len(seen) * cpu_share)
    monkeypatch.setattr(parallel, "time", clocks)
    for_each(range(91 + AT_ONCE), work, if_slow=True)
    assert sorted(seen) == list(range(91 + AT_ONCE))
    assert (workers == {threading.get_ident()}) is is_alone


NO_THREADS = """
import threading
from longboat.bundles.parallel import for_each

def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
seen = []
for_each(range(100), seen.append)
assert seen == list(range(100)), seen
"""


def test_where_no_thread_may_be_started_it_is_done_one_by_one() -> None:
    subprocess.run([sys.executable, "-c", NO_THREADS], check=True)
