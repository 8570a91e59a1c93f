"""`longboat drill` as a user types it, on this machine."""

from __future__ import annotations

import json

import pytest

from longboat.cli.commands.checkpoints.drill import print_result
from longboat.sdk.drill.judge import DrillCheck, DrillResult
from tests.cli.conftest import Longboat

FIT = """
import json, os, sys
import longboat

step, weight = 0, 10.0
if longboat.resume_from() and "ignore" not in sys.argv:
    step, weight = json.load(open(longboat.resume_from() + "/state"))
    weight += 5.0 * ("drift" in sys.argv)
while step < 12:
    step, weight = step + 1, weight * 0.9
    longboat.step(step, loss=weight)
    if step % 4 == 0 and "nothing" not in sys.argv:
        with longboat.checkpoint(step) as folder:
            json.dump([step, weight], open(folder + "/state", "w"))
"""
JOB = """
name: fit
run: python fit.py
procs: 2
retries: {count: 1, backoff: 0.05s}
"""


@pytest.fixture
def fit(longboat: Longboat) -> Longboat:
    (longboat.folder / "fit.py").write_text(FIT)
    (longboat.folder / "fit.yaml").write_text(JOB)
    return longboat


def test_a_metrics_name_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    check = DrillCheck(name="\x1b[2Jloss", ok=False, detail="\x1b]0;title\x07")
    print_result(
        DrillResult(
            run="b", reference="a", ok=False, metric="\x1b[2Jloss", tolerance=0.1, compared=0, difference=None,
            checks=(check,),
        )
    )  # fmt: skip
    assert "FAILED \\x1b[2Jloss: \\x1b]0;title\\x07\n" in capsys.readouterr().out


def test_a_training_that_recovers(fit: Longboat) -> None:
    drilled = fit("drill", "fit.yaml", "--kill", "rank=1@step=6", "--kill", "node@step=10", "-o", "json")
    assert drilled.err.count("run fit-2: kills rank 1 at step 6") == drilled.err.count("killed rank 1 at step 6") == 1
    result = json.loads(drilled.out)
    assert result["ok"] and result["run"] == "fit-2" and result["difference"] == 0
    assert [(each["last_step"], each["first_step"], each["lost_steps"]) for each in result["recoveries"]] == [
        (6, 5, 2),
        (10, 9, 2),
    ]
    assert [each["resumed_from"].rpartition("/")[2] for each in result["recoveries"]] == ["step-4", "step-8"]
    shown = fit("status", "fit-2").out
    assert "resume verified" in shown and "rank 1 at step 6, 2 steps lost" in shown
    assert "resume verified" in json.loads(fit("status", "fit", "-o", "json").out)["drill"]


def test_a_finished_run_is_compared_with_and_a_drift_is_found(fit: Longboat) -> None:
    fit("run", "-q", "fit.yaml", "--set", "run=python fit.py drift")
    found = fit("drill", "fit", "--kill", "launcher", code=211)
    assert "FAILED loss: loss differs at step" in found.out
    assert found.err.splitlines()[-2].startswith("error: the drill of fit-2 failed: loss differs at step")
    assert "resume FAILED" in fit("status", "fit").out
    refused = fit("drill", "fit", "--kill", "rank=0@step=99", code=203)
    assert "step 99 is never reached: the last step of fit is 12" in refused.err
    assert "fit has no rank 2" in fit("drill", "fit", "--kill", "rank=2", code=202).err
    fit("drill", "fit", "--kill", "everything", code=201)


def test_a_job_without_checkpoints_is_refused(fit: Longboat) -> None:
    refused = fit("drill", "fit.yaml", "--set", "run=python fit.py nothing", "--set", "procs=1", code=203)
    assert "error: fit wrote no checkpoints: there is nothing to resume from" in refused.err


def test_what_cannot_be_drilled(longboat: Longboat) -> None:
    (longboat.folder / "tune.yaml").write_text("run: python train.py\nsweep: {lr: [1, 2]}\n")
    assert "the job has a `sweep`: it stands for many runs" in longboat("drill", "tune.yaml", code=201).err
    refused = longboat("drill", "train.py", code=201).err
    assert "train.py is no job file" in refused and "hint: write one: longboat init train.py" in refused
    assert not longboat("ps", "-a", "-o", "name").out
