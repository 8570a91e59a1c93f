"""Chains: when a run starts, waits, or never starts."""

from __future__ import annotations

import pytest

from longboat.core.errors import NotFound, Refused
from longboat.core.jobs import Job, Role
from longboat.core.runs import Phase, RunStatus
from longboat.engines.lifecycle.predecessors import (
    ChainVerdict,
    Predecessor,
    PredecessorView,
    judge_chain,
    predecessors_of,
)

AFTER = (Predecessor(run="a", uid="1"), Predecessor(run="b", uid="2"))


def seen(**phases: Phase) -> dict[str, PredecessorView]:
    return {run: PredecessorView(uid="1" if run == "a" else "2", phase=phase) for run, phase in phases.items()}


@pytest.mark.parametrize(
    ("views", "action", "words"),
    [
        (seen(a="succeeded", b="succeeded"), "start", ""),
        (seen(a="running", b="pending"), "wait", "a (running), b (pending)"),
        (seen(a="succeeded", b="recovering"), "wait", "b (recovering)"),
        (seen(a="running", b="failed"), "never", "b, which failed"),
        (seen(a="stopped", b="running"), "never", "a, which was stopped"),
        (seen(a="succeeded"), "never", "b, which was removed"),
        ({**seen(a="succeeded"), "b": PredecessorView(uid="9", phase="succeeded")}, "never", "b, which was removed"),
    ],
)
def test_verdicts(views: dict[str, PredecessorView], action: str, words: str) -> None:
    verdict = judge_chain(AFTER, views)
    assert verdict.action == action and words in verdict.reason


def test_what_it_waits_for_and_why_not() -> None:
    assert judge_chain(AFTER, seen(a="succeeded", b="running")).waits_for == ("b",)
    failed = {"a": PredecessorView(uid="1", phase="failed", exit_code=3)}
    assert judge_chain(AFTER[:1], failed).reason == "it was to start after a, which failed (exit code 3)"
    assert judge_chain((), {}) == ChainVerdict(action="start")


def test_one_that_was_seen_to_succeed_may_be_removed_while_the_others_go_on() -> None:
    verdict = judge_chain(AFTER, seen(a="succeeded", b="running"))
    assert verdict.succeeded == ("a",)
    later = judge_chain(AFTER, seen(b="running"), verdict.succeeded)
    assert (later.action, later.waits_for, later.succeeded) == ("wait", ("b",), ("a",))
    assert judge_chain(AFTER, seen(b="succeeded"), later.succeeded).action == "start"
    assert judge_chain(AFTER, seen(b="failed"), later.succeeded).action == "never"


def status(name: str, phase: Phase) -> RunStatus:
    return RunStatus(name=name, uid="1", job=name, phase=phase, engine="local", created=0.0, nodes=1, gpus=0)


def test_a_chain_that_can_never_start_is_refused() -> None:
    job = Job(name="c", roles=(Role(name="worker", run="true"),), after=("a",))
    assert predecessors_of(job, lambda name: status(name, "running")) == AFTER[:1]
    for phase in ("failed", "stopped"):
        with pytest.raises(Refused, match="after: a"):
            predecessors_of(job, lambda name, phase=phase: status(name, phase))

    def missing(name: str) -> RunStatus:
        raise NotFound(f"no run named {name!r}")

    with pytest.raises(NotFound, match="after: no run named 'a'"):
        predecessors_of(job, missing)
