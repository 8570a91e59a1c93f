"""Any process may die at any time; the next command finds the truth and carries on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from longboat.core.runs import LogQuery
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.supervise.processes import identify, is_alive
from longboat.engines.shared.files import remove_tree
from tests.engines.local.conftest import WAITS, LocalJobs


def test_a_killed_supervisor_is_noticed_and_the_run_is_lost(local: LocalJobs) -> None:
    run = local.submit(WAITS, nodes=2, procs=2, gpus=1, environment=local.place.with_gpus("a", "b"))
    local.until_said(run.name, "ready", times=4)
    local.kill(local.supervisor(run.name))
    told: list[str] = []
    engine = LocalEngine(local.home.root, environment=local.place.environment, on_notice=told.append)
    engine.status(run.name)
    assert any("supervisor" in text and run.name in text for text in told)
    ended = local.wait(run.name)
    assert (ended.phase, ended.cause, ended.exit_code) == ("failed", "lost", 208), ended.reason
    assert "supervisor" in ended.reason
    assert local.place.processes(run.uid) == []
    assert local.text(run.name).count("ready") == 4
    queued = [path.name for path in (local.home.root / "queue").iterdir() if path.name[0] != "."]
    assert queued == [], "its place in the queue went with it"
    after = local.run("print('free')", name="after", gpus=2, environment=local.place.with_gpus("a", "b"))
    assert after.phase == "succeeded"


def test_a_killed_supervisor_and_retries(local: LocalJobs) -> None:
    run = local.submit(WAITS, nodes=2, retries={"count": 1, "backoff": "0s"})
    local.until_said(run.name, "ready", times=2)
    local.kill(local.supervisor(run.name))
    local.engine.list()
    local.until(lambda: local.text(run.name, attempt=1).count("ready") == 2, "the whole gang starts again")
    local.let_go(run.name)
    ended = local.wait(run.name)
    assert (ended.phase, ended.attempt) == ("succeeded", 1), ended.reason
    assert [attempt.failure and attempt.failure.cause for attempt in ended.attempts] == ["lost", None]


ECHO = "\nprint('who', os.environ.get('WHO'), os.environ.get('LOOKS'), os.environ.get('HF_TOKEN'), flush=True)\n"


@pytest.mark.parametrize("is_restarted", [False, True], ids=["killed", "restarted"])
def test_the_environment_of_who_looks_reaches_no_retry(local: LocalJobs, is_restarted: bool) -> None:
    own = {**local.place.environment, "WHO": "submitter"}
    run = local.submit("import os" + ECHO + WAITS, retries={"count": 1, "backoff": "0s"}, environment=own)
    local.until_said(run.name, "ready")
    kept = Path(f"/dev/shm/longboat-{run.uid}.environment")
    assert kept.stat().st_mode & 0o777 == 0o600
    if is_restarted:  # memory is empty then
        kept.unlink()
    local.kill(local.supervisor(run.name))
    looks = {**local.place.environment, "WHO": "looker", "LOOKS": "yes", "HF_TOKEN": "of the looker"}
    LocalEngine(local.home.root, environment=looks).status(run.name)
    local.until(lambda: "ready" in local.text(run.name, attempt=1), "it is tried again")
    assert ("who None None None" if is_restarted else "who submitter None None") in local.text(run.name, attempt=1)
    findings = " ".join(local.engine.status(run.name).findings)
    assert ("since attempt 2 it has only the variables" in findings) == is_restarted
    assert ("since attempt 2" in " ".join(local.engine.explain(run.name).facts)) == is_restarted
    local.let_go(run.name)
    assert local.wait(run.name).phase == "succeeded"
    local.until(lambda: not kept.exists(), "nothing is kept after the end")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no memory with names here")
def test_what_is_kept_for_a_run_whose_files_were_removed_by_hand(local: LocalJobs) -> None:
    run = local.submit(WAITS, name="train")
    other = local.submit(WAITS, name="other")
    for each in (run, other):
        local.until_said(each.name, "ready")
    kept = [Path(f"/dev/shm/longboat-{each.uid}.environment") for each in (run, other)]
    supervisor, pids = local.supervisor(run.name), local.place.processes(run.uid)
    local.kill(supervisor)
    local.until(lambda: not local.place.processes(run.uid), "its ranks have ended")
    remove_tree(local.files(run.name).directory)
    assert kept[0].exists() and pids
    again = local.run("print('a later run of this name')", name="train")
    assert again.phase == "succeeded"
    local.until(lambda: not kept[0].exists(), "the end of the next run takes it away")
    assert kept[1].exists(), "that of a run that goes on stays"
    local.let_go(other.name)
    assert local.wait(other.name).phase == "succeeded"


def test_wait_and_follow_notice_it_by_themselves(local: LocalJobs) -> None:
    run = local.submit(WAITS, retries={"count": 1, "backoff": "0s"})
    lines = local.place.again().logs(run.name, LogQuery(follow=True))
    assert b"ready" in next(lines).data
    local.kill(local.supervisor(run.name))
    assert b"ready" in next(lines).data
    local.let_go(run.name)
    assert [line.data for line in lines] == [b"done\n"]
    assert local.wait(run.name).phase == "succeeded"


def test_a_trainer_that_leaves_in_order_when_its_supervisor_is_lost_has_not_succeeded(local: LocalJobs) -> None:
    code = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n" + WAITS
    run = local.submit(code)
    local.until_said(run.name, "ready")
    local.kill(local.supervisor(run.name))
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("failed", 208), ended.reason


@pytest.mark.parametrize("exit_code", [0, 7])
def test_a_run_that_had_in_truth_finished(local: LocalJobs, exit_code: int) -> None:
    """The supervisor is frozen while the ranks end, and killed before it can tell."""
    run = local.submit(WAITS + f"sys.exit({exit_code})")
    local.until_said(run.name, "ready")
    supervisor = local.supervisor(run.name)
    local.kill(supervisor, signal.SIGSTOP)
    local.let_go(run.name)
    outcome = local.files(run.name).attempt_dir(0) / "worker-0" / "outcome.json"
    local.until(outcome.exists, "the launcher has ended")
    local.kill(supervisor)
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("failed" if exit_code else "succeeded", exit_code), ended.reason
    assert "done" in local.text(run.name)


def test_a_supervisor_killed_while_it_waits_for_its_turn(local: LocalJobs) -> None:
    gpus = local.place.with_gpus("a")
    local.submit(WAITS, name="holder", gpus=1, environment=gpus)
    local.until_said("holder", "ready")
    for name in ("first", "second"):
        local.submit(f"print('{name}')", name=name, gpus=1, environment=gpus)
        local.until(lambda name=name: "waits for" in local.engine.status(name).reason, f"{name} waits")
    local.kill(local.supervisor("first"))
    status = local.engine.status("first")
    local.until(lambda: "waits for 1 GPU" in local.engine.status("first").reason, "it waits again")
    local.let_go("holder")
    first, second = local.wait("first"), local.wait("second")
    assert (first.phase, second.phase, first.attempt) == ("succeeded", "succeeded", 0), status.reason


def test_a_killed_launcher(local: LocalJobs) -> None:
    run = local.submit(WAITS, nodes=2, procs=2)
    local.until_said(run.name, "ready", times=4)
    local.kill(local.launchers(run.name)[1])
    ended = local.wait(run.name)
    assert (ended.phase, ended.cause, ended.exit_code) == ("failed", "lost", 208), ended.reason
    assert "worker-1" in ended.reason
    assert local.place.processes(run.uid) == []


def test_a_killed_launcher_and_retries(local: LocalJobs) -> None:
    run = local.submit(WAITS, nodes=2, retries={"count": 1, "on": ["lost"], "backoff": "0s"})
    local.until_said(run.name, "ready", times=2)
    local.kill(local.launchers(run.name)[0])
    local.until(lambda: local.text(run.name, attempt=1).count("ready") == 2, "the whole gang starts again")
    local.let_go(run.name)
    assert local.wait(run.name).phase == "succeeded"


def test_a_killed_rank(local: LocalJobs) -> None:
    run = local.submit(WAITS, nodes=2, procs=2)
    local.until_said(run.name, "ready", times=4)
    os.kill(int(local.text(run.name, rank=2).split()[1]), signal.SIGKILL)
    ended = local.wait(run.name)
    assert (ended.phase, ended.cause, ended.exit_code) == ("failed", "signal", 137), ended.reason
    assert ended.attempts[0].failure is not None and ended.attempts[0].failure.rank is not None
    assert ended.attempts[0].failure.rank.rank == 2


def test_a_rank_that_had_failed_before_its_launcher_was_killed(local: LocalJobs) -> None:
    """Rank 0 exits with 7, rank 1 takes its time to leave; then the launcher is killed."""
    code = """
import os, signal, sys, time
listens = os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "listens")
if os.environ["RANK"] == "0":
    while not os.path.exists(listens): time.sleep(0.01)
    sys.exit(7)
signal.signal(signal.SIGTERM, lambda *_: print("slow", flush=True))
open(listens, "x")
while True: time.sleep(0.01)
"""
    run = local.submit(code, procs=2, grace="60s")
    local.until_said(run.name, "slow")
    local.kill(local.launchers(run.name)[0])
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("failed", 7), ended.reason


FLOOD = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
side = os.open(os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "written"), os.O_WRONLY | os.O_CREAT)
number = 0
while True:
    os.write(1, b"line %d\\n" % number)
    os.pwrite(side, b"%d" % number, 0)
    number += 1
"""


@pytest.mark.parametrize("victims", ["launcher", "supervisor", "both"])
def test_no_line_that_was_written_is_lost(local: LocalJobs, victims: str) -> None:
    run = local.submit(FLOOD, grace="1s")
    local.until_said(run.name, "line 2000\n")
    supervisor, launcher = local.supervisor(run.name), local.launchers(run.name)[0]
    if victims == "both":  # at one moment: none of them may do anything for the other
        local.kill(supervisor, signal.SIGSTOP)
        local.kill(launcher, signal.SIGSTOP)
        time.sleep(0.2)  # the rank goes on writing until the pipe is full
    if victims != "launcher":
        local.kill(supervisor)
    if victims != "supervisor":
        local.kill(launcher)
    local.engine.status(run.name)
    ended = local.wait(run.name)
    assert ended.exit_code == 208, ended.reason
    assert ended.checkpoint_dir is not None
    written = int(Path(ended.checkpoint_dir, "written").read_text())
    lines = local.text(run.name).splitlines()
    assert lines[: written + 1] == [f"line {number}" for number in range(written + 1)]


def test_everybody_looks_at_once_and_one_supervisor_takes_over(local: LocalJobs) -> None:
    run = local.submit(WAITS, retries={"count": 3, "backoff": "0s"})
    local.until_said(run.name, "ready")
    local.kill(local.supervisor(run.name))
    fork = multiprocessing.get_context("fork")
    lookers = [fork.Process(target=lambda: local.place.again().status(run.name)) for _ in range(4)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    local.let_go(run.name)
    ended = local.wait(run.name)
    assert (ended.phase, ended.attempt) == ("succeeded", 1)


def test_a_submitter_that_is_killed_takes_nothing_with_it(local: LocalJobs) -> None:
    fork = multiprocessing.get_context("fork")
    submission = local.submission(WAITS, run_id="orphan")

    def submit() -> None:
        os.setsid()
        local.place.again().submit(submission)
        os.killpg(0, signal.SIGKILL)

    submitter = fork.Process(target=submit)
    submitter.start()
    submitter.join()
    local.until_said("orphan", "ready")
    local.let_go("orphan")
    assert local.wait("orphan").phase == "succeeded"


def test_a_submitter_killed_before_the_supervisor_was_started(
    local: LocalJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longboat.engines.local import engine as module

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "spawn", die)
        with pytest.raises(KeyboardInterrupt):
            local.submit("print('all the same')")
    assert local.wait("job").phase == "succeeded"
    assert local.text("job") == "all the same\n"


def test_a_foreign_process_with_the_pid_of_ours_is_never_killed(local: LocalJobs) -> None:
    """Pids are used again: what state.json and launcher.json name may be somebody else by now."""
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        run = local.submit(WAITS, grace="0s")
        local.until_said(run.name, "ready")
        supervisor, launcher = local.supervisor(run.name), local.launchers(run.name)[0]
        local.kill(supervisor)
        local.until(lambda: not is_alive(launcher), "the launcher leaves by itself")
        files = local.files(run.name)
        for known in (True, False):
            forged = identify(stranger.pid)
            if not known:
                forged = msgspec.structs.replace(forged, start_ticks=1)
            state = msgspec.structs.replace(files.state(), supervisor=forged)
            files.write_state(state)
            (files.attempt_dir(0) / "worker-0" / "launcher.json").write_bytes(msgspec.json.encode(forged))
        ended = local.wait(run.name)
        assert (ended.phase, ended.exit_code) == ("failed", 208)
        local.engine.delete(run.name)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
