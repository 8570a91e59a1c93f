"""The order of steps: hosts side by side, needs first, a failure stops who needs it. The transport is simulated."""

from __future__ import annotations

import threading

import pytest

from longboat.clusters.apply.execute import Execution
from longboat.clusters.apply.step_log import StepEvent
from longboat.clusters.hosts.connection import CommandResult, Content, HostUnreachable, Line
from longboat.clusters.plan.steps import ClusterPlan, HostPlan, Step


class Simulated:
    """A host that only writes down what it was asked; scripts that hold `fail` fail."""

    def __init__(self, name: str, log: list[str], meet: threading.Barrier | None = None) -> None:
        self.name, self.log, self.meet = name, log, meet

    def run(
        self, script: str, *, stdin: Content = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        word = script.split("\nbegin ")[1].split()[0]
        if self.meet:
            self.meet.wait(10)
        self.log.append(f"{self.name}/{word}")
        if on_line:
            on_line(f"said {word}")
        if word == "bug":
            raise KeyError(word)
        if word == "gone":
            raise HostUnreachable(self.name, "the connection broke")
        return CommandResult(code=1 if word == "fail" else 0, stdout="", stderr="first\nlast line\n")

    def close(self) -> None: ...


def step(host: str, name: str, word: str = "", needs: tuple[str, ...] = ()) -> Step:
    return Step(host=host, name=name, title=name, script=f"\nbegin {word or name} \n", needs=needs)


def execute(*steps: Step, meet: bool = False) -> tuple[list[str], list[str], list[StepEvent]]:
    """What was run, what failed, every event."""
    names = list(dict.fromkeys(each.host for each in steps))
    log: list[str] = []
    barrier = threading.Barrier(len(names)) if meet else None
    hosts = {name: Simulated(name, log, barrier) for name in names}
    plan = ClusterPlan(
        hosts=tuple(HostPlan(host=name, steps=tuple(each for each in steps if each.host == name)) for name in names)
    )
    events: list[StepEvent] = []
    failures = Execution(hosts, lambda _step: b"", events.append).run(plan)
    return log, [f"{each.host}/{each.step}: {each.message}" for each in failures], events


def test_steps_of_a_host_run_in_their_order() -> None:
    assert execute(step("a", "one"), step("a", "two"))[0] == ["a/one", "a/two"]


def test_hosts_run_side_by_side() -> None:
    """Each waits until the other is there too."""
    log, failures, _ = execute(step("a", "x"), step("b", "x"), step("c", "x"), meet=True)
    assert sorted(log) == ["a/x", "b/x", "c/x"] and not failures


def test_a_step_waits_for_what_it_needs() -> None:
    log, _, _ = execute(step("w", "join", needs=("cp/init",)), step("cp", "prepare"), step("cp", "init"))
    assert log == ["cp/prepare", "cp/init", "w/join"]


def test_a_need_that_is_not_in_the_plan_was_met_before() -> None:
    assert execute(step("w", "join", needs=("cp/init",)))[0] == ["w/join"]


def test_a_failure_stops_its_host_and_who_needs_it_and_nobody_else() -> None:
    log, failures, events = execute(
        step("cp", "prepare", "fail"), step("cp", "init"), step("w", "own"), step("w", "join", needs=("cp/init",)),
        step("x", "own"),
    )  # fmt: skip
    assert sorted(log) == ["cp/fail", "w/own", "x/own"]
    assert failures == ["cp/prepare: last line"]
    assert {(e.host, e.step) for e in events if e.state == "skipped"} == {("cp", "init"), ("w", "join")}


def test_a_bug_on_one_host_is_raised_and_nobody_waits_for_ever() -> None:
    with pytest.raises(KeyError):
        execute(step("cp", "init", "bug"), step("w", "own"), step("w", "join", needs=("cp/init",)))


def test_a_host_that_breaks_off_is_a_failure_of_its_own() -> None:
    _, failures, events = execute(step("a", "x", "gone"), step("a", "y"), step("b", "x"))
    assert failures == ["a/x: the connection broke"]
    assert [e.text for e in events if e.state == "line" and e.host == "b"] == ["said x"]
