"""Promise 5: `stop` gives the ranks their grace, then ends all of them."""

from __future__ import annotations

import pytest

from longboat.core.errors import RUN_STOPPED_EXIT, WaitTimeout
from tests.conformance.conftest import Jobs

SAVES = """
import os, signal, sys, time
def save(*_):
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True: time.sleep(0.05)
"""

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: time.sleep(0.05)
"""


def test_ranks_have_time_to_save(jobs: Jobs) -> None:
    run = jobs.submit(SAVES, nodes=2, procs=2, grace="30s")
    jobs.until_said(run.name, "ready", times=4)
    jobs.engine.stop(run.name)
    ended = jobs.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("stopped", 0), ended.reason
    assert jobs.text(run.name).count("saved") == 4
    assert jobs.place.processes(run.uid) == []


def test_the_stop_of_a_trainer_that_asks(jobs: Jobs) -> None:
    code = """
import longboat, time
longboat.should_stop()
print("ready", flush=True)
while not longboat.should_stop(): time.sleep(0.02)
print("left in order")
"""
    run = jobs.submit(code, grace="30s")
    jobs.until_said(run.name, "ready")
    jobs.engine.stop(run.name)
    assert jobs.wait(run.name).exit_code == 0
    assert "left in order" in jobs.text(run.name)


def test_a_rank_that_does_not_listen_is_killed(jobs: Jobs) -> None:
    run = jobs.submit(STUBBORN, procs=2, grace="1s")
    jobs.until_said(run.name, "ready", times=2)
    jobs.engine.stop(run.name)
    ended = jobs.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("stopped", 137)
    assert jobs.place.processes(run.uid) == []


def test_the_grace_may_be_shortened(jobs: Jobs) -> None:
    run = jobs.submit(STUBBORN, grace="10m")
    jobs.until_said(run.name, "ready")
    jobs.engine.stop(run.name, grace_s=0.5)
    assert jobs.wait(run.name).phase == "stopped"


def test_stopping_again_hastens_the_end(jobs: Jobs) -> None:
    run = jobs.submit(STUBBORN, grace="10m")
    jobs.until_said(run.name, "ready")
    jobs.engine.stop(run.name)
    jobs.engine.stop(run.name)
    with pytest.raises(WaitTimeout):
        jobs.engine.wait(run.name, timeout_s=0.5)
    jobs.engine.stop(run.name, grace_s=0)
    assert jobs.wait(run.name).phase == "stopped"
    jobs.engine.stop(run.name)
    assert jobs.engine.status(run.name).phase == "stopped"


def test_the_whole_tree_goes(jobs: Jobs) -> None:
    """Children, sessions of their own, double forks, processes without the run's environment."""
    code = """
import os, signal, subprocess, sys, time
sleep = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, sleep)
    os._exit(0)
bare = subprocess.Popen(sleep, start_new_session=True, env={"PATH": os.environ["PATH"]})
print("bare", bare.pid, flush=True)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print("ready", flush=True)
while True: time.sleep(0.05)
"""
    run = jobs.submit(code, grace="1s")
    jobs.until_said(run.name, "ready")
    jobs.until(lambda: len(jobs.place.processes(run.uid)) >= 4, "the tree stands")
    jobs.engine.stop(run.name)
    assert jobs.wait(run.name).phase == "stopped"
    assert jobs.place.processes(run.uid) == []
    bare = int(jobs.text(run.name).split("bare ")[1].split()[0])
    assert not jobs.place.is_process(bare, uid=run.uid)


def test_what_a_successful_rank_leaves_behind_goes_too(jobs: Jobs) -> None:
    code = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
"""
    run = jobs.run(code)
    assert (run.phase, run.exit_code) == ("succeeded", 0)
    assert jobs.place.processes(run.uid) == []


def test_a_waiting_run_stops_at_once(jobs: Jobs) -> None:
    gpus = jobs.place.with_gpus("a")
    holder = jobs.submit("import time; time.sleep(60)", name="holder", gpus=1, environment=gpus)
    jobs.until_phase(holder.name, "running")
    waiting = jobs.submit("print('never')", name="waiting", gpus=1, environment=gpus)
    jobs.until(lambda: "waits for" in jobs.engine.status(waiting.name).reason, "it waits")
    jobs.engine.stop(waiting.name)
    ended = jobs.wait(waiting.name)
    assert (ended.phase, ended.exit_code) == ("stopped", RUN_STOPPED_EXIT)
    assert jobs.text(waiting.name) == ""
    assert jobs.engine.status(holder.name).phase == "running"


def test_a_stop_right_after_the_submission(jobs: Jobs) -> None:
    for number in range(4):
        run = jobs.submit("import time; time.sleep(60)", name=f"short-{number}", nodes=2, retries=2)
        jobs.engine.stop(run.name, grace_s=1)
        ended = jobs.wait(run.name)
        assert (ended.phase, ended.attempt) == ("stopped", 0)
        assert jobs.place.processes(run.uid) == []


def test_a_stop_is_no_failure_to_retry(jobs: Jobs) -> None:
    run = jobs.submit("import time; print('ready', flush=True); time.sleep(60)", retries=5)
    jobs.until_said(run.name, "ready")
    jobs.engine.stop(run.name)
    ended = jobs.wait(run.name)
    assert (ended.phase, ended.attempt, ended.exit_code) == ("stopped", 0, 143)


def test_a_stop_between_two_attempts(jobs: Jobs) -> None:
    run = jobs.submit("import sys; sys.exit(3)", retries={"count": 5, "backoff": "60s"})
    jobs.until_phase(run.name, "recovering")
    jobs.engine.stop(run.name)
    ended = jobs.wait(run.name)
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("stopped", 3, 1)


def test_waiting_has_an_end_of_its_own(jobs: Jobs) -> None:
    run = jobs.submit("import time; time.sleep(60)")
    with pytest.raises(WaitTimeout):
        jobs.engine.wait(run.name, timeout_s=0.2)
    assert not jobs.engine.status(run.name).is_final
