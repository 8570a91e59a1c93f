"""Many who look at once share their threads; none is left when they are done."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from longboat.engines.kubernetes.submit.facts.shared_pool import SharedPool


def test_eight_callers_have_no_more_threads_than_one() -> None:
    shared, meet = SharedPool(4), threading.Barrier(8)
    names: set[str] = set()

    def look(number: int) -> list[int]:
        with shared.borrowed() as pool:
            meet.wait(30)
            found = [pool.submit(lambda: names.add(threading.current_thread().name) or number) for _ in range(20)]
            return [future.result() for future in found]

    with ThreadPoolExecutor(8) as callers:
        assert [set(found) for found in callers.map(look, range(8))] == [{number} for number in range(8)]
    assert 0 < len(names) <= 4
    assert not [thread for thread in threading.enumerate() if thread.name in names]


def test_a_fork_has_threads_of_its_own() -> None:
    shared = SharedPool(2)
    with shared.borrowed() as pool:
        assert pool.submit(os.getpid).result() == os.getpid()
        child = os.fork()
        if child == 0:
            with shared.borrowed() as own:
                os._exit(0 if own.submit(os.getpid).result(30) == os.getpid() else 1)
        assert os.waitpid(child, 0)[1] == 0
