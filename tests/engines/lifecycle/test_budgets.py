"""Budgets as data: what counts, what is used up, who is held back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.runs import Attempt, RunStatus
from longboat.engines.lifecycle.budgets import Budget, Period, budget_words, held_back, held_hours, read_budgets

HOUR = 3600.0
NOW = 110 * HOUR
RUN = RunStatus(
    name="digits", uid="u", job="digits", phase="succeeded", engine="local", created=101 * HOUR, nodes=2, gpus=4,
    started=102 * HOUR, ended=105 * HOUR, user="anna", labels={"team": "vision"},
)  # fmt: skip
OTHER = msgspec.structs.replace(RUN, name="big", user="bob", labels={"team": "speech"})


def test_a_budget_counts_what_its_runs_have_held_lately() -> None:
    vision = Budget(name="team=vision", gpu_hours=10.0, per_s=10 * HOUR)
    words = (1.2, "budget team=vision: 12.0 of 10 GPU-hours of the last 10h")
    assert budget_words(vision, [RUN, OTHER], NOW) == words
    bob = Budget(name="user=bob", gpu_hours=120.0)
    assert budget_words(bob, [RUN, OTHER], NOW)[0] == 0.1
    assert budget_words(bob, [RUN, OTHER], NOW + 60 * 24 * HOUR)[0] == 0.0  # long ago
    everybody = Budget(name="*", gpu_hours=12.0)
    assert budget_words(everybody, [RUN, OTHER], NOW) == (
        2.0,
        "budget of the namespace: 24.0 of 12 GPU-hours of the last 30d",
    )


def test_a_run_that_waits_holds_nothing() -> None:
    suspended = (Attempt(number=0, started=101 * HOUR),)
    waiting = msgspec.structs.replace(RUN, phase="pending", started=None, ended=None, attempts=suspended)
    period = Period(start=0.0, end=NOW)
    assert held_hours(waiting, period) == 0.0
    ended = msgspec.structs.replace(RUN, attempts=(Attempt(number=0, started=101 * HOUR, ended=105 * HOUR),))
    assert held_hours(ended, period) == 12.0, "from when it was let in"


def test_only_a_used_up_budget_that_holds_keeps_a_run() -> None:
    def reason(user: str = "anna", labels: dict[str, str] | None = None, **fields: Any) -> str:
        budget = Budget(**{"name": "team=vision", "gpu_hours": 12.0, "hold": True, **fields})
        return held_back([budget], user, labels or {"team": "vision"}, [RUN], NOW)

    words = "held back by the budget team=vision: 12.0 of 12 GPU-hours of the last 30d, used up"
    assert reason().startswith(words)
    assert reason(hold=False) == reason(gpu_hours=13.0) == reason(labels={"team": "speech"}) == ""
    assert reason("bob", name="user=anna") == "" and reason("anna", name="user=anna")


def test_as_they_are_written() -> None:
    written = {"*": {"gpu_hours": 500, "per": "7d", "hold": True}, "team=vision": {"gpu_hours": 0.5}}
    whole, team = read_budgets(written)
    assert (whole.name, whole.gpu_hours, whole.per_s, whole.hold) == ("*", 500.0, 7 * 24 * HOUR, True)
    assert (team.name, team.gpu_hours, team.per_s, team.hold) == ("team=vision", 0.5, 30 * 24 * HOUR, False)


@pytest.mark.parametrize(
    "written",
    [[], {"*": 5}, {"*": {"gpu_hours": 0}}, {"*": {"gpu_hours": 1, "per": "soon"}}, {"*": {"gpu_hours": 1, "keep": 1}}],
)
def test_what_is_no_budget(written: Any) -> None:
    with pytest.raises(ValueError):
        read_budgets(written)
