"""A run that waits for another one sees to it that the other one goes on."""

from __future__ import annotations

from tests.engines.local.conftest import WAITS, LocalJobs


def test_a_predecessor_whose_supervisor_was_killed_is_lost_before_anybody_looks(local: LocalJobs) -> None:
    first = local.submit(WAITS, name="first", grace="0s")
    local.until_said(first.name, "ready")
    second = local.submit("print('second')", name="second", after="first")
    local.until(lambda: "first" in local.files(second.name).state().reason, "the second one waits")
    local.kill(local.supervisor(first.name))
    local.until(lambda: local.files(second.name).state().is_final, "the second one has ended")
    ended = [local.files(run.name).state() for run in (first, second)]
    assert [(state.phase, state.cause) for state in ended] == [("failed", "lost"), ("failed", "dependency")]


def test_a_predecessor_whose_supervisor_was_killed_goes_on_with_its_retries(local: LocalJobs) -> None:
    retries = {"count": 1, "backoff": "0s"}
    first = local.submit(WAITS, name="first", grace="0s", retries=retries)
    local.until_said(first.name, "ready")
    second = local.submit("print('second')", name="second", after="first")
    local.until(lambda: "first" in local.files(second.name).state().reason, "the second one waits")
    local.kill(local.supervisor(first.name))
    local.until(lambda: local.files(first.name).state().attempt == 1, "the first one is tried again")
    local.let_go(first.name)
    local.until(lambda: local.files(second.name).state().is_final, "the second one has ended")
    ended = [local.files(run.name).state() for run in (first, second)]
    assert [state.phase for state in ended] == ["succeeded", "succeeded"], ended
