"""Budgets that hold runs of this machine back: a new run waits, says why, and goes when there is more."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from longboat.engines.local.queue import budgets
from longboat.engines.local.queue.budgets import BudgetHold
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.home import Home
from tests.cli.conftest import Longboat

NONE_LEFT = "budgets: {team=vision: {gpu_hours: 1, hold: true}}"
HOUR = 3600.0


def age(home: Path, run: str) -> None:
    """As if it had begun two hours before it ended."""
    files = RunFiles(home / "runs" / run)
    state = files.state()
    assert state.started is not None
    attempts = tuple(msgspec.structs.replace(each, started=each.started - 2 * HOUR) for each in state.attempts)
    files.write_state(msgspec.structs.replace(state, started=state.started - 2 * HOUR, attempts=attempts))


def test_a_new_run_waits_and_others_pass_it(longboat: Longboat, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longboat.environment["LONGBOAT_GPUS"] = "g0"
    team = ("--gpus", "1", "--label", "team=vision")
    longboat("run", "-q", "--id", "first", *team, "--", "true")
    age(home, "first")
    (home / "config.yaml").write_text(NONE_LEFT)
    done = longboat("run", "-d", "--id", "second", *team, "--", "true")
    assert "note: budget team=vision: 2.0 of 1 GPU-hours of the last 30d: used up" in done.err
    deadline = time.monotonic() + 60.0
    while "held back" not in (told := longboat("explain", "second").out):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    assert "held back by the budget team=vision: 2.0 of 1 GPU-hours of the last 30d, used up" in told
    longboat("run", "-q", "--gpus", "1", "--", "true")
    assert "used up, new runs are held back" in longboat("cost").err

    monkeypatch.setattr(budgets, "FRESH_S", 0.0)
    record = RunFiles(home / "runs" / "second").record()
    hold = BudgetHold(Home(home), record, is_new=True)
    assert hold.reason() and not BudgetHold(Home(home), record, is_new=False).reason()
    (home / "config.yaml").write_text(NONE_LEFT.replace("1", "3"))
    assert hold.reason() == ""
    longboat("stop", "second")
