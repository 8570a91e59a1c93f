"""Lists of runs: what is said of a run that nobody looks after."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes.reconcile.listing import UNATTENDED_S, with_overdue_restart
from longboat.engines.kubernetes.reconcile.outlook import predicted
from longboat.engines.kubernetes.records import State
from tests.engines.kubernetes.run_samples import NOW, ended, opened, retried, snapshot, verdict, workload


@pytest.mark.parametrize(("ago", "is_left"), [(5.0, False), (UNATTENDED_S + 5.0, True)])
def test_a_retry_that_nobody_makes_names_who_can(ago: float, is_left: bool) -> None:
    """Without a controller `ps` said `retry 1 of 1` for ever."""
    gang = verdict(3, "exit", "exit code 3")
    seen = snapshot(ended(0, 3, gang=gang, at=NOW - ago), ended(1, 3, at=NOW - ago), job_=retried())
    state = predicted(seen, NOW).snapshot.state
    assert state.phase == "recovering"
    told = with_overdue_restart(seen, state, NOW).reason
    assert ("that is up to anna with `longboat wait train`, or a controller" in told) is is_left, told


def test_a_retry_that_is_stored_and_overdue() -> None:
    state = State(phase="recovering", attempt=1, attempts=(opened(),), reason="retry 1 of 1", not_before=NOW - 100)
    seen = snapshot(job_=retried(), state=state)
    assert with_overdue_restart(seen, state, NOW).reason.startswith("retry 1 of 1; nobody restarts it")
    assert with_overdue_restart(seen, state, NOW - 90) == state
    begun = snapshot(job_=retried(), state=state, workloads=(workload(), workload(1)))
    assert with_overdue_restart(begun, state, NOW) == state
