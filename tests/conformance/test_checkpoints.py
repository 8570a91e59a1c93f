"""Checkpoints one by one, and recovery drills: the same on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import Refused
from longboat.sdk.drill.conduct import Drill
from longboat.sdk.drill.kills import parse_kills
from longboat.storage.inventory.actions import get, promote, remove, verify
from tests.conformance.conftest import Jobs

FIT = """
import json, os
import longboat

step, weight = 0, 10.0
if longboat.resume_from():
    step, weight = json.load(open(longboat.resume_from() + "/state"))
while step < 12:
    step, weight = step + 1, weight * 0.9
    longboat.step(step, loss=weight)
    if step % 4 == 0:
        with longboat.checkpoint(step) as folder:
            json.dump([step, weight], open(folder + "/state", "w"))
"""


def test_a_drill_and_its_checkpoints_in_hand(jobs: Jobs, tmp_path: Path) -> None:
    submission = jobs.submission(FIT, name="fit", procs=2, retries={"count": 2, "backoff": "0s"})
    kills = parse_kills(["rank=1@step=6", "node@step=10"], submission.job)
    said: list[str] = []
    drill = Drill(jobs.engine, kills, metric=None, tolerance=0.001, tell=said.append)
    result = drill.run(submission, None)
    assert result.ok, result.failures
    assert [(each.last_step, each.first_step, each.lost_steps) for each in result.recoveries] == [(6, 5, 2), (10, 9, 2)]
    assert all(each.first_step_s is not None for each in result.recoveries)
    assert "resume verified" in jobs.engine.status(result.run).drill
    assert "resume verified" in jobs.engine.status(result.reference).drill

    run = result.run
    with jobs.engine.checkpoints(run) as place:
        entries = place.entries()
        assert [(entry.step, entry.complete, entry.attempt) for entry in entries] == [
            (4, True, 0),
            (8, True, 1),
            (12, True, 2),
        ]
        assert entries[0].metrics == {"loss": pytest.approx(10.0 * 0.9**4)} and entries[0].size == len("[4, 6.561]")
        assert promote(place, run, "4").promoted
        with pytest.raises(Refused, match="promoted"):
            remove(place, run, ["4"], is_final=True, force=False)
        assert [entry.step for entry in remove(place, run, ["8"], is_final=True, force=False)] == [8]
        assert [(check.step, check.compared, check.problems) for check in verify(place, run, "")] == [
            (4, "hashes", ()),
            (12, "hashes", ()),
        ]
        copy = get(place, run, "promoted", tmp_path / "copy")
    assert (copy / "state").read_text().startswith("[4, ")
    resumed = jobs.run(FIT, name="fit", procs=2, checkpoints={"resume": f"{run}:promoted"})
    assert resumed.phase == "succeeded" and (resumed.attempts[0].resumed_from or "").endswith("/step-4"), resumed.reason
