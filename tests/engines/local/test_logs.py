"""Merging the log files of a run, without any run."""

from __future__ import annotations

from pathlib import Path

from longboat.core.runs import LogQuery
from longboat.engines.local.logs import LogFileFollower
from tests.engines.local.conftest import LocalJobs
from tests.engines.shared.test_logfiles import attempt_with, put


def test_all_are_merged_by_time_and_attempts_follow_each_other(tmp_path: Path) -> None:
    attempt_with(tmp_path)
    put(tmp_path / "attempts/1/worker-0/logs/0.out", (0.1, b"the clock went back\n"))
    lines = list(LogFileFollower(tmp_path, LogQuery()).lines([0, 1], is_last=True))
    assert [line.data.decode().strip() for line in lines] == [
        "installs", "0 first", "0 warns", "1 middle", "0 last", "the clock went back",
    ]  # fmt: skip


def test_a_clock_that_goes_back_does_not_mix_up_a_rank(tmp_path: Path) -> None:
    log = tmp_path / "attempts/0/worker-0/logs/0.out"
    put(log, *((when, b"%d\n" % n) for n, when in enumerate([10, 11, 3, 4, 12])))
    put(log.with_name("1.out"), (5, b"x\n"))
    lines = list(LogFileFollower(tmp_path, LogQuery()).lines([0], is_last=True))
    assert [line.data for line in lines if line.rank == 0] == [b"%d\n" % n for n in range(5)]


def test_lists_tell_the_step_and_its_metrics(local: LocalJobs) -> None:
    """While the run goes on, and after its end."""
    code = """
import longboat, os, time
longboat.step(7, loss=0.25)
print("ready", flush=True)
while not os.path.exists(os.environ["LONGBOAT_CHECKPOINT_DIR"] + "/go"): time.sleep(0.01)
"""
    run = local.submit(code)

    def listed() -> tuple[int | None, dict[str, float]]:
        return next((each.step, each.metrics) for each in local.engine.list() if each.name == run.name)

    local.until(lambda: listed() == (7, {"loss": 0.25}), "the step is listed")
    local.let_go(run.name)
    assert local.wait(run.name).metrics == {"loss": 0.25} and listed() == (7, {"loss": 0.25})
