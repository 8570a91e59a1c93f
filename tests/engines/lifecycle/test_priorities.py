"""Whose priority can be changed."""

from __future__ import annotations

import pytest

from longboat.core.errors import UsageError
from longboat.core.runs import Phase, RunStatus
from longboat.engines.lifecycle.priorities import check_waiting


@pytest.mark.parametrize(
    ("phase", "priority", "message"),
    [
        ("running", 1, "does not wait: it is running"),
        ("failed", 1, "does not wait: it has failed"),
        ("pending", 2_000_000, "not a priority"),
    ],
)
def test_refusals(phase: Phase, priority: int, message: str) -> None:
    run = RunStatus(name="a", uid="1", job="a", phase=phase, engine="local", created=0.0, nodes=1, gpus=0)
    with pytest.raises(UsageError, match=message):
        check_waiting(run, priority)


def test_a_waiting_run_may_change() -> None:
    run = RunStatus(name="a", uid="1", job="a", phase="pending", engine="local", created=0.0, nodes=1, gpus=0)
    check_waiting(run, -5)
