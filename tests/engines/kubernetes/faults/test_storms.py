"""An API server that refuses, breaks off and forgets, while a run is submitted, followed, stopped and removed."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial

import pytest

from longboat.core.runs import LogQuery
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.faults.grounds import LONG_S, Ground
from tests.engines.kubernetes.flavours import FLAVOURS

pytestmark = [pytest.mark.pods, pytest.mark.parametrize("flavour", FLAVOURS)]


def start_storm(proxy: ApiProxy) -> None:
    """A fifth of all requests is refused for being too many, another fifth meets a broken server."""
    proxy.answer(429, share=0.2, retry_after=1)
    proxy.answer(500, share=0.2)


def follow(ground: Ground, found: list[str]) -> threading.Thread:
    """Collects the lines of the run until its end."""

    def read() -> None:
        with_own = ground.open()
        found.extend(line.data.decode().rstrip("\n") for line in with_own.logs("job", LogQuery(follow=True)))
        with_own.close()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return reader


def has_more(lines: list[str], count: int) -> bool:
    return len(lines) > count


def check_lines(lines: list[str]) -> None:
    """All of them, once, in order."""
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert lines[0] == "ready 0" and lines[-1] == "last 0"
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_storm_from_the_first_request_to_the_last(stormy: Ground, api_proxy: ApiProxy) -> None:
    start_storm(api_proxy)
    stormy.submit(run_id="job", retries={"count": 1, "backoff": "0s"})
    found: list[str] = []
    reader = follow(stormy, found)
    stormy.until_started()
    stormy.let_go(0, 7)
    stormy.let_go(1, 0)
    ended = stormy.wait()
    reader.join(LONG_S)
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
    assert [line for line in found if line.startswith("last")] == ["last 0", "last 1"]
    stormy.check_book(attempts=2)
    stormy.remove()


def test_watches_that_are_dropped_every_second(stormy: Ground, api_proxy: ApiProxy) -> None:
    api_proxy.drop_watches_every(1.0)
    stormy.submit(nodes=2)
    found: list[str] = []
    reader = follow(stormy, found)
    stormy.until_started(ranks=2)
    stormy.until(lambda: sum(one.request.is_watch for one in api_proxy.seen) > 8, "watches are opened again")
    stormy.let_go(0, 0, 5)
    ended = stormy.wait()
    reader.join(LONG_S)
    assert (ended.phase, ended.exit_code) == ("failed", 5), ended.reason
    assert found.count("last 0") == 2
    stormy.check_book(ranks=2)
    stormy.remove()


def test_log_streams_that_are_cut(stormy: Ground, api_proxy: ApiProxy) -> None:
    """Everything the proxy carries is reset again and again while a log is followed."""
    stormy.submit()
    found: list[str] = []
    reader = follow(stormy, found)
    stormy.until_started()
    for count in range(3, 18, 3):
        stormy.until(partial(has_more, found, count), "lines arrive again")
        api_proxy.cut()
        api_proxy.restore()
    stormy.let_go()
    assert stormy.wait().phase == "succeeded"
    reader.join(LONG_S)
    check_lines(found)
    stormy.check_book()
    stormy.remove()


@pytest.mark.parametrize("status", [429, 500])
def test_a_stop_in_a_storm_reaches_the_gang(stormy: Ground, api_proxy: ApiProxy, status: int) -> None:
    stormy.submit(nodes=2)
    stormy.until_started(ranks=2)
    api_proxy.answer(status, share=0.35, retry_after=1 if status == 429 else None)
    stormy.engine.stop("job")
    ended = stormy.wait()
    assert (ended.phase, ended.exit_code) == ("stopped", 143), ended.reason
    stormy.check_book(ranks=2)
    stormy.remove()


def test_a_stop_asks_no_rank_how_it_is(stormy: Ground, api_proxy: ApiProxy) -> None:
    """Each question is a command in a pod, and takes as long as the order to stop."""
    stormy.submit(nodes=2)
    stormy.until_started(ranks=2)
    before = len(api_proxy.seen)
    place = ["--engine", "kubernetes", "--namespace", stormy.namespace]
    command = [sys.executable, "-m", "longboat", "stop", "job", "--grace", "0s", *place]
    done = subprocess.run(command, env=stormy.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "job\n"), done.stderr
    assert sum("/exec" in one.request.path for one in api_proxy.seen[before:]) == 1
    stormy.check_book(ranks=2)
    stormy.remove()
