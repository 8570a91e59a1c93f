"""Elastic runs on this machine where something dies: real supervisors and launchers, killed while the size changes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.runfiles import RunFiles
from longboat.specs.read import read_job

TRAINS = """
import longboat, os, signal, time
resumed = longboat.resume_from()
step = int(open(os.path.join(resumed, "n")).read()) if resumed else 0
print(f"{longboat.rank()} of {longboat.world_size()} from {step}", flush=True)
signal.signal(signal.SIGTERM, lambda *_: (open("asked", "w").close(), time.sleep(SLOW), os._exit(0)))
while longboat.world_size() < 2 or step < 10:
    time.sleep(0.05)
    step += 1
    if step % 5 == 0:
        with longboat.checkpoint(step) as folder:
            open(os.path.join(folder, "n"), "w").write(str(step))
"""
LONG_S = 120.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Runs:
    def __init__(self, home: Path, code: str, folder: Path) -> None:
        self.environment = {**os.environ, "LONGBOAT_HOME": str(home), "LONGBOAT_GPUS": "a,b"}
        self.engine = LocalEngine(home, environment=self.environment)
        self.home, self.folder = home, folder
        (folder / "train.py").write_text(code)

    def submit(self, **fields: object) -> RunStatus:
        given = {"name": "run", "run": "python train.py", "gpus": 1, "grace": "20s", **fields}
        loaded = read_job([], fields=given, environment=self.environment, cwd=self.folder)
        return self.engine.submit(Submission(job=loaded.job, base=loaded.base, environment=self.environment))

    def files(self, run: str) -> RunFiles:
        return RunFiles(self.home / "runs" / run)

    def text(self, run: str) -> str:
        return b"".join(line.data for line in self.engine.logs(run, LogQuery()) if line.rank >= 0).decode()


def grown(home: Path, tmp_path: Path, slow: float) -> tuple[Runs, str]:
    """A run of one node that is about to grow to two: its ranks have been asked to end."""
    runs = Runs(home, TRAINS.replace("SLOW", str(slow)), tmp_path)
    holder = runs.submit(name="holder", run="sleep 600")
    until(lambda: runs.engine.status(holder.name).phase == "running")
    run = runs.submit(name="grows", nodes="1-2").name
    until(lambda: "0 of 1 from 0" in runs.text(run))
    runs.engine.stop(holder.name, grace_s=0)
    until(lambda: runs.files(run).state().target == 2)
    return runs, run


def test_a_supervisor_that_dies_while_the_size_changes_costs_no_retry(home: Path, tmp_path: Path) -> None:
    runs, run = grown(home, tmp_path, slow=2.0)
    supervisor = runs.files(run).state().supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    ended = runs.engine.wait(run, timeout_s=LONG_S)
    assert ended.phase == "succeeded", ended.reason
    assert [each.size for each in ended.attempts] == [1, 2] and ended.retries == 0
    assert ended.attempts[0].resized and ended.attempts[0].failure is None
    assert "1 of 2 from" in runs.text(run) and "1 of 2 from 0\n" not in runs.text(run)


def test_a_stop_while_the_size_changes_is_a_stop(home: Path, tmp_path: Path) -> None:
    runs, run = grown(home, tmp_path, slow=5.0)
    runs.engine.stop(run)
    ended = runs.engine.wait(run, timeout_s=LONG_S)
    assert (ended.phase, len(ended.attempts)) == ("stopped", 1)
    assert runs.files(run).state().gpus == ()


def test_a_lost_launcher_is_a_failure_and_the_next_attempt_has_what_there_is(home: Path, tmp_path: Path) -> None:
    code = TRAINS.replace("SLOW", "0").replace("longboat.world_size() < 2 or step < 10", "not resumed or step < 10")
    runs = Runs(home, code, tmp_path)
    run = runs.submit(name="loses", nodes="1-2", retries={"count": 1, "backoff": "0s"}).name
    until(lambda: runs.engine.status(run).checkpoint)
    launcher = runs.files(run).attempt_dir(0) / "worker-1" / "launcher.json"
    from longboat.engines.local.supervise.processes import ProcessId
    from longboat.engines.shared.files import read_value

    process = read_value(launcher, ProcessId)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    ended = runs.engine.wait(run, timeout_s=LONG_S)
    assert (ended.phase, [each.size for each in ended.attempts]) == ("succeeded", [2, 2]), ended.reason
    assert ended.attempts[0].failure is not None and ended.attempts[0].failure.cause == "lost"
    assert ended.resizes == 0 and not ended.attempts[0].resized
