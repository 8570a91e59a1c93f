"""Budgets of this machine's settings, as a supervisor reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.engines.local.queue.budgets import set_budgets
from longboat.engines.shared.home import Home


def test_those_that_are_set(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text("engine: local\nbudgets: {team=vision: {gpu_hours: 5, hold: true}}\n")
    (budget,) = set_budgets(Home(home))
    assert (budget.name, budget.gpu_hours, budget.hold) == ("team=vision", 5.0, True)


@pytest.mark.parametrize("text", ["", "budgets: [", "budgets: {a=b: {gpu_hours: x}}", "[budgets]", "engine: local"])
def test_what_cannot_be_read_holds_nobody(text: str, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(text)
    assert set_budgets(Home(home)) == []
