"""The supervisor as a process: what it inherits, obeys and survives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import msgspec
import pytest

from longboat.core.errors import EngineError
from longboat.engines.lifecycle.kept_environment import forget_environment, keep_environment, kept_environment
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.supervise import spawn
from longboat.engines.local.supervise.processes import is_alive
from longboat.engines.local.supervise.supervisor import Supervisor
from longboat.engines.shared.secrets import set_secret
from tests.engines.local.conftest import WAITS, LocalJobs


def test_the_supervisor_obeys_a_shutdown(local: LocalJobs) -> None:
    code = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('saves', flush=True), sys.exit(0)))\n"
        + WAITS
    )
    run = local.submit(code)
    local.until_said(run.name, "ready")
    local.kill(local.supervisor(run.name), signal.SIGTERM)
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("stopped", 0), ended.reason
    assert "saves" in local.text(run.name)


def test_modules_in_the_current_folder_are_not_ours(local: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = local.root / "code"
    folder.mkdir()
    for name in ("signal", "select", "msgspec", "longboat", "traceback"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(folder)
    run = local.run("", run=["sh", "-c", "echo fine"])
    assert run.phase == "succeeded", local.files(run.name).log.read_text()


def test_a_supervisor_lets_go_of_its_callers_descriptors(local: LocalJobs) -> None:
    """Somebody may wait for the end of a pipe that our caller inherited."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    run = local.submit(WAITS)
    local.until_said(run.name, "ready")
    os.close(writer)
    os.set_blocking(reader, False)
    assert os.read(reader, 1) == b""
    os.close(reader)
    local.let_go(run.name)
    assert local.wait(run.name).phase == "succeeded"


def test_a_ticket_that_may_not_be_read_changes_no_verdict(local: LocalJobs) -> None:
    """One that `sudo longboat run` has left in the queue: a run that had succeeded became one that had failed."""
    run = local.submit(WAITS)
    local.until_said(run.name, "ready")
    supervisor = local.supervisor(run.name)
    closed = local.home.folder("queue") / "closed.lock"
    closed.mkdir()  # what root cannot read either
    local.let_go(run.name)
    local.until(lambda: not is_alive(supervisor), "the supervisor is gone")
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("succeeded", 0), ended.reason
    assert not (local.files(run.name).directory / "crash.txt").exists()


def test_what_breaks_after_the_end_changes_no_verdict(local: LocalJobs) -> None:
    run = local.run("raise SystemExit(7)")
    local.until(lambda: not is_alive(local.supervisor(run.name)), "the supervisor is gone")
    supervisor = Supervisor(local.files(run.name).directory)
    supervisor.fail_hard("a bug")
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("failed", 7), ended.reason


def test_python_is_the_one_of_the_caller(local: LocalJobs) -> None:
    run = local.run("import sys; print(sys.prefix)")
    assert local.text(run.name).strip() == sys.prefix


JUMPING = (
    "import os, sys, time; real = time.time; mark = sys.argv[1] + '/jump'; "
    "time.time = lambda: real() + ({} if os.path.exists(mark) else 0); "
)


@pytest.mark.parametrize("jump_s", [86400.0, -86400.0])
def test_a_clock_that_jumps_ends_no_run(local: LocalJobs, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    """The supervisor's clock jumps by a day while a run with a timeout of an hour works."""
    monkeypatch.setattr(spawn, "_may_fork", lambda: False)  # a fork would need no program
    monkeypatch.setattr(spawn, "_PROGRAM", JUMPING.format(jump_s) + spawn._PROGRAM)
    run = local.submit(WAITS, timeout="1h")
    local.until_said(run.name, "ready")
    local.until_phase(run.name, "running")
    (local.files(run.name).directory / "jump").touch()
    time.sleep(2.5)  # longer than the supervisor sleeps at most
    assert local.engine.status(run.name).phase == "running"
    local.let_go(run.name)
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("succeeded", 0), ended.reason
    assert local.text(run.name).splitlines()[-1] == "done"


@pytest.mark.parametrize("where", ["kept", "of who looks", "nowhere"])
def test_a_secret_of_the_first_command_is_kept_until_the_machine_restarts(local: LocalJobs, where: str) -> None:
    with_secret = {**local.place.environment, "TOKEN": "s3cret"}
    code = WAITS.replace('"ready"', '"ready", len(os.environ["TOKEN"])')
    run = local.submit(code, secrets=["TOKEN"], environment=with_secret, retries={"count": 1, "backoff": "0s"})
    local.until_said(run.name, "ready 6")
    if where != "kept":
        forget_environment(run.uid)  # as a restart does
    local.kill(local.supervisor(run.name))
    finder = LocalEngine(
        local.home.root, environment=with_secret if where == "of who looks" else local.place.environment
    )
    finder.status(run.name)
    if where != "nowhere":
        local.until_said(run.name, "ready 6", times=2)
        local.let_go(run.name)
    ended = local.wait(run.name)
    if where != "nowhere":
        assert ended.phase == "succeeded", ended.reason
    else:
        assert (ended.phase, ended.exit_code) == ("failed", 209) and "TOKEN" in ended.reason


def test_a_machine_that_restarted(local: LocalJobs) -> None:
    run = local.submit(WAITS, grace="0s")
    local.until_said(run.name, "ready")
    launcher = local.launchers(run.name)[0]
    local.kill(local.supervisor(run.name))
    local.until(lambda: not is_alive(launcher), "the launcher leaves")
    files = local.files(run.name)
    before = msgspec.structs.replace(local.supervisor(run.name), boot_id="another boot")
    files.write_state(msgspec.structs.replace(files.state(), supervisor=before))
    ended = local.wait(run.name)
    assert (ended.cause, ended.exit_code) == ("lost", 208) and "restarted" in ended.reason


def test_supervisors_that_cannot_even_begin(local: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with the reason; its orphans go. Supervisor and launcher were killed before."""
    run = local.submit(WAITS)
    local.until_said(run.name, "ready")
    launcher, supervisor = local.launchers(run.name)[0], local.supervisor(run.name)
    for process in (supervisor, launcher):
        local.kill(process, signal.SIGSTOP)
    for process in (supervisor, launcher):
        local.kill(process)
    assert local.place.processes(run.uid)
    monkeypatch.setattr(spawn, "_may_fork", lambda: False)  # a fork would need no program
    monkeypatch.setattr(spawn, "_PROGRAM", "raise SystemExit('no more threads')")
    ended = local.wait(run.name)
    assert (ended.phase, ended.cause, ended.exit_code) == ("failed", "lost", 208)
    assert "no more threads" in ended.reason
    assert local.place.processes(run.uid) == []


def test_ranks_that_take_their_whole_grace_are_told(local: LocalJobs) -> None:
    code = """
import os, signal, sys, time
if os.environ["RANK"] == "0":
    while not os.path.exists("deaf"):
        time.sleep(0.02)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("deaf", "w").close()
time.sleep(600)
"""
    run = local.submit(code, procs=2, grace="10m")
    local.until(lambda: "have 600 s to end (`grace`)" in local.engine.status(run.name).reason, "the reason is said")
    local.engine.stop(run.name, grace_s=0.0)
    assert local.wait(run.name).exit_code == 3


def test_what_cannot_be_removed_keeps_no_run_from_ending(local: LocalJobs) -> None:
    """A file of its TMPDIR is immutable, as one below a mount would be."""
    code = "import os; open(os.environ['TMPDIR'] + '/kept', 'w').close(); os.system('chattr +i $TMPDIR/kept')"
    if os.getuid() != 0 or not shutil.which("chattr"):
        pytest.skip("only root makes files immutable, with chattr")
    run = local.submit(code)
    try:
        ended = local.wait(run.name)
        assert (ended.phase, ended.exit_code) == ("succeeded", 0), ended.reason
        assert "stays" in local.files(run.name).log.read_text()
        other = local.run("print(1)")
        with pytest.raises(EngineError):
            local.engine.delete(run.name)
        local.engine.delete(other.name)
    finally:
        subprocess.run(["chattr", "-R", "-i", str(local.home.runs)], check=False, capture_output=True)


def test_a_signal_on_a_full_disk_stops_the_run_with_its_grace(local: LocalJobs) -> None:
    """The request cannot be stored: a folder is in its place."""
    code = WAITS.replace("print", "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint", 1)
    run = local.submit(code)
    local.until_said(run.name, "ready")
    local.files(run.name).stop.with_name(f"stop.json.{local.supervisor(run.name).pid}.tmp").mkdir()
    local.kill(local.supervisor(run.name), signal.SIGTERM)
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("stopped", 7), ended.reason


def test_a_secret_that_was_changed_reaches_the_next_attempt(local: LocalJobs) -> None:
    set_secret(local.home, "TOKEN", "old")
    code = "import os, sys; print(len(os.environ['TOKEN'])); sys.exit(3 if os.environ['TOKEN'] == 'old' else 0)"
    run = local.submit(code, secrets=["TOKEN"], retries={"count": 3, "backoff": "1s"})
    local.until_phase(run.name, "recovering")
    set_secret(local.home, "TOKEN", "rotated")
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("succeeded", 0), ended.reason
    assert ended.attempts[-1].restart == "new"


def test_a_home_that_is_not_mounted_has_lost_no_run(tmp_path: Path) -> None:
    uid, runs = uuid.uuid4().hex[:12], tmp_path / "home" / "runs"
    keep_environment(uid, str(runs / "train"), {"A": "1"})
    try:
        spawn.forget_removed()
        assert kept_environment(uid) == {"A": "1"}
        runs.parent.mkdir()  # where it would be mounted
        spawn.forget_removed()
        assert kept_environment(uid) == {"A": "1"}
        runs.mkdir()
        spawn.forget_removed()
        assert kept_environment(uid) is None, "its folder was removed by hand"
    finally:
        forget_environment(uid)


def test_what_cannot_be_read_of_another_run_fails_nobody(tmp_path: Path) -> None:
    """Every end of a run looks at what is kept for others: a disk that fails under one of them is that one's affair."""
    uid = uuid.uuid4().hex[:12]
    (tmp_path / "record.json").mkdir()
    keep_environment(uid, str(tmp_path), {"A": "1"})
    try:
        spawn.forget_removed()
        assert kept_environment(uid) == {"A": "1"}
    finally:
        forget_environment(uid)
