"""Which runs are old enough to be removed."""

from __future__ import annotations

import pytest

from longboat.core.runs import FINAL_PHASES, Phase, PruneQuery, RunStatus
from longboat.engines.lifecycle.pruning import expired


def status(phase: Phase, ended: float | None) -> RunStatus:
    return RunStatus(name="a", uid="0", job="a", phase=phase, engine="local", created=0.0, nodes=1, gpus=0, ended=ended)


@pytest.mark.parametrize(
    ("phase", "ended", "phases", "is_gone"),
    [
        ("succeeded", 99.0, FINAL_PHASES, True),
        ("stopped", 99.0, FINAL_PHASES, True),
        ("failed", 99.0, ("failed",), True),
        ("succeeded", 99.0, ("failed",), False),
        ("succeeded", 100.0, FINAL_PHASES, False),
        ("succeeded", None, FINAL_PHASES, False),
        ("running", None, FINAL_PHASES, False),
        ("recovering", 1.0, FINAL_PHASES, False),
        ("running", 1.0, ("running",), False),
    ],
)
def test_only_ended_runs_of_that_age(
    phase: Phase, ended: float | None, phases: tuple[Phase, ...], is_gone: bool
) -> None:
    found = list(expired([status(phase, ended)], PruneQuery(ended_before=100.0, phases=phases)))
    assert [run.name for run in found] == ["a"] * is_gone
