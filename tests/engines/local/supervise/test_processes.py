"""Processes that are known again, found by their mark, and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from longboat.engines.local.supervise.processes import (
    ProcessId,
    boot_id,
    descendants,
    identify,
    is_alive,
    kill_until_gone,
    marked,
    reap,
    start_ticks,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "LONGBOAT_RUN_UID": f"test{os.getpid()}", "LONGBOAT_NODE": "worker-0", "LONGBOAT_ATTEMPT": "1"}
    process = subprocess.Popen(["sleep", "600"], env=env)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_more_than_its_pid(sleeper: subprocess.Popen[bytes]) -> None:
    who = identify(sleeper.pid)
    assert is_alive(who)
    assert who.start_ticks is not None and who.boot_id == boot_id()
    assert not is_alive(ProcessId(pid=who.pid, start_ticks=who.start_ticks + 1, boot_id=who.boot_id))
    assert not is_alive(ProcessId(pid=who.pid, start_ticks=who.start_ticks, boot_id="another boot"))
    assert is_alive(ProcessId(pid=who.pid))


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    who = identify(sleeper.pid)
    sleeper.kill()
    while is_alive(who):
        time.sleep(0.001)
    assert start_ticks(sleeper.pid) is not None  # its parent has not asked for it yet
    sleeper.wait()
    assert not is_alive(who) and start_ticks(sleeper.pid) is None


def test_marks(sleeper: subprocess.Popen[bytes]) -> None:
    uid = f"test{os.getpid()}"
    while marked(uid) != [sleeper.pid]:
        time.sleep(0.001)  # between fork and exec
    assert marked(uid, node="worker-0", attempt=1) == [sleeper.pid]
    assert marked(uid, node="worker-00") == marked(uid, attempt=0) == marked(uid[:-1]) == []


def test_the_tree_below(sleeper: subprocess.Popen[bytes]) -> None:
    parent = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & wait"])
    try:
        while len(descendants(parent.pid)) < 2:
            time.sleep(0.001)
        below = descendants(os.getpid())
        assert {sleeper.pid, parent.pid, *descendants(parent.pid)} <= set(below)
        tree = descendants(parent.pid)
        assert kill_until_gone(lambda: [*descendants(parent.pid), *([parent.pid] if parent.poll() is None else [])])
        assert not any(start_ticks(pid) and is_alive(identify(pid)) for pid in tree)
    finally:
        parent.kill()
        parent.wait()


def test_ending_strays_takes_no_childs_exit_code_away(sleeper: subprocess.Popen[bytes]) -> None:
    """The caller may have children of its own: their ends are theirs to collect."""
    own = subprocess.Popen(["sh", "-c", "exit 5"])
    while is_alive(identify(own.pid)):
        time.sleep(0.001)
    uid = f"test{os.getpid()}"
    assert kill_until_gone(lambda: marked(uid))
    assert own.wait() == 5
    assert sleeper.wait() == -9


def test_processes_that_survive_sigkill_are_reported() -> None:
    assert kill_until_gone(lambda: [2**22 + 7], timeout_s=0.05) is False


def test_reaping_collects_every_child() -> None:
    code = "import os, sys, time; from longboat.engines.local.supervise.processes import reap\n"
    code += "pids = [os.spawnlp(os.P_NOWAIT, 'sh', 'sh', '-c', f'exit {n}') for n in (3, 4)]\n"
    code += "got = []\nwhile len(got) < 2: got += reap()\n"
    code += "assert sorted((p, os.WEXITSTATUS(s)) for p, s in got) == sorted(zip(pids, (3, 4))) and reap() == []"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert callable(reap)
