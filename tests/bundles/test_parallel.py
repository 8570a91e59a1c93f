from __future__ import annotations

import subprocess
import sys
import threading

import pytest

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
