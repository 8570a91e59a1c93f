"""Chains on this machine: what a waiting run has seen of those before it is kept."""

from __future__ import annotations

import time

from tests.engines.local.conftest import WAITS, LocalJobs


def test_a_run_that_was_seen_to_succeed_may_be_removed(local: LocalJobs) -> None:
    first = local.run("print('first')", name="first")
    other = local.submit(WAITS, name="other")
    local.until_said(other.name, "ready")
    last = local.submit("print('last')", name="last", after=[first.name, other.name])
    deadline = time.monotonic() + 30
    while local.files(last.name).state().succeeded != ("first",):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    local.engine.delete(first.name)
    time.sleep(1.2)  # it has looked again
    assert local.engine.status(last.name).phase == "pending"
    local.let_go(other.name)
    assert local.wait(last.name).phase == "succeeded"
