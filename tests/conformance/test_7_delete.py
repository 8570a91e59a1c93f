"""Promise 7: nothing is left behind after `delete`, checkpoints excepted."""

from __future__ import annotations

import multiprocessing
import threading

import pytest

from longboat.core.errors import NotFound
from longboat.core.runs import LogQuery, PruneQuery
from tests.conformance.conftest import LONG_S, Jobs

SAVES = """
import os
folder = os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "step-1")
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, ".complete"), "w").close()
open("result.txt", "w").write("42")
os.mkdir("locked"); open("locked/file", "w").close(); os.chmod("locked", 0o500)
"""


@pytest.mark.parametrize("purge", [False, True])
def test_nothing_is_left_but_checkpoints(jobs: Jobs, purge: bool) -> None:
    run = jobs.run(SAVES, artifacts=["*.txt"], nodes=2, gpus=1, environment=jobs.place.with_gpus("a", "b"), procs=1)
    assert run.phase == "succeeded", jobs.text(run.name)
    assert run.checkpoint_dir is not None and jobs.checkpoints(run.name) == ["step-1"]
    jobs.engine.delete(run.name, purge=purge)
    assert jobs.place.traces(run.name, run.uid) == []
    assert jobs.place.processes(run.uid) == []
    assert jobs.place.has_checkpoints(run.checkpoint_dir) is not purge
    with pytest.raises(NotFound):
        jobs.engine.status(run.name)
    with pytest.raises(NotFound):
        jobs.engine.delete(run.name)
    assert list(jobs.engine.list()) == []


def test_a_running_run_is_stopped_first(jobs: Jobs) -> None:
    code = """
import os, signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
def save(*_):
    open(os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "saved"), "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""
    run = jobs.submit(code, gpus=1, environment=jobs.place.with_gpus("a"))
    jobs.until_said(run.name, "ready")
    folder = jobs.engine.status(run.name).checkpoint_dir
    jobs.engine.delete(run.name)
    assert jobs.place.processes(run.uid) == []
    assert jobs.place.traces(run.name, run.uid) == []
    assert folder is not None and jobs.place.has_checkpoints(folder)
    free = jobs.run("print('mine')", name="next", gpus=1, environment=jobs.place.with_gpus("a"))
    assert free.phase == "succeeded"


def test_a_waiting_run_is_deleted(jobs: Jobs) -> None:
    gpus = jobs.place.with_gpus("a")
    holder = jobs.submit("import time; time.sleep(60)", name="holder", gpus=1, environment=gpus)
    jobs.until_phase(holder.name, "running")
    waiting = jobs.submit("", name="waiting", gpus=1, environment=gpus)
    jobs.engine.delete(waiting.name)
    assert [run.name for run in jobs.engine.list()] == ["holder"]
    jobs.engine.delete(holder.name)
    assert jobs.place.traces(waiting.name, waiting.uid) == []


def test_pruned_by_age(jobs: Jobs) -> None:
    """What has ended goes as `delete` removes it; what runs stays, and so does what ended later."""
    running = jobs.submit("import time; time.sleep(600)", name="running")
    ended = jobs.run(SAVES, name="ended")
    assert ended.ended is not None and ended.checkpoint_dir is not None
    assert list(jobs.engine.prune(PruneQuery(ended_before=ended.ended - 1))) == []
    query = PruneQuery(ended_before=ended.ended + 3600)
    (shown,) = jobs.engine.prune(PruneQuery(ended_before=query.ended_before, dry_run=True))
    assert (shown.kind, shown.name, shown.phase) == ("run", ended.name, "succeeded")
    assert [run.name for run in jobs.engine.prune(query)] == [ended.name]
    left = [run for run in jobs.engine.list() if run.expired is None]
    assert [run.name for run in left] == [running.name], "a cluster keeps a record of what has expired"
    assert jobs.place.has_checkpoints(ended.checkpoint_dir)


def test_kept_checkpoints_keep_their_name(jobs: Jobs) -> None:
    """A new run does not get the folder of checkpoints that were kept; nor the name, where that makes the folder."""
    first = jobs.run(SAVES)
    jobs.engine.delete(first.name)
    second = jobs.run("print(1)")
    assert first.checkpoint_dir is not None and first.checkpoint_dir != second.checkpoint_dir
    assert jobs.place.has_checkpoints(first.checkpoint_dir)
    jobs.engine.delete(second.name, purge=True)
    assert jobs.place.has_checkpoints(first.checkpoint_dir)
    if jobs.place.is_this_machine:
        assert (first.name, second.name) == ("job", "job-2")
        assert jobs.submit("print(1)").name == "job-2"


def test_one_run_is_deleted_and_its_neighbour_is_not_touched(jobs: Jobs) -> None:
    keep = jobs.submit(
        "import time; print('ready', flush=True); time.sleep(1); print(open('train.py').read()[:6])", name="keep"
    )
    gone = jobs.run("print('ready')", name="gone", nodes=2)
    jobs.engine.delete(gone.name, purge=True)
    assert jobs.wait(keep.name).phase == "succeeded"
    assert jobs.text(keep.name).splitlines() == ["ready", "import"]


def test_deleted_by_several_at_once(jobs: Jobs) -> None:
    run = jobs.submit("import time; print('ready', flush=True); time.sleep(60)")
    jobs.until_said(run.name, "ready")
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()

    def delete() -> None:
        try:
            jobs.place.again().delete(run.name)
            answers.put("")
        except NotFound:
            answers.put("")
        except Exception as error:
            answers.put(repr(error))

    deleters = [fork.Process(target=delete) for _ in range(4)]
    for deleter in deleters:
        deleter.start()
    assert [answers.get() for _ in deleters] == [""] * 4
    for deleter in deleters:
        deleter.join()
    assert jobs.place.traces(run.name, run.uid) == []
    assert jobs.place.processes(run.uid) == []


def test_who_waits_for_a_run_that_is_deleted_is_told(jobs: Jobs) -> None:
    """It sees the end, or that the run is gone; it does not wait for ever."""
    run = jobs.submit("import time; print('ready', flush=True); time.sleep(60)")
    jobs.until_said(run.name, "ready")
    ends: list[str] = []

    def wait() -> None:
        try:
            ends.append(jobs.place.again().wait(run.name).phase)
        except NotFound:
            ends.append("not found")

    def follow() -> None:
        try:
            ends.append(str(len(list(jobs.place.again().logs(run.name, LogQuery(follow=True))))))
        except NotFound:
            ends.append("not found")

    threads = [threading.Thread(target=wait), threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    jobs.engine.delete(run.name)
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert len(ends) == 2 and set(ends) <= {"stopped", "not found", "1"}
