"""Promise 9: a waiting run says what it waits for. And it waits in its place, and gets what is its own."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from longboat.core.errors import NotFound, Refused, UsageError
from longboat.core.runs import RunStatus
from tests.conformance.conftest import Jobs

HOLDS = """
import os, time
print("holds", os.environ.get("CUDA_VISIBLE_DEVICES", "-"), flush=True)
while not os.path.exists(os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "go")):
    time.sleep(0.02)
"""


class Gpus:
    """Runs that hold the place's GPUs until they are let go."""

    def __init__(self, jobs: Jobs, *ids: str) -> None:
        self.jobs = jobs
        self.environment: Mapping[str, str] = jobs.place.with_gpus(*ids)

    def submit(self, name: str, gpus: int, **fields: object) -> RunStatus:
        return self.jobs.submit(HOLDS, name=name, gpus=gpus, environment=self.environment, **fields)

    def until_holding(self, run: str) -> list[str]:
        self.jobs.until_said(run, "holds")
        return sorted(self.jobs.text(run, rank=0).split("holds ")[1].split()[0].split(","))

    def until_waiting(self, run: str, *words: str) -> str:
        status = self.jobs.engine.status
        self.jobs.until(lambda: all(word in status(run).reason for word in words), f"{run} waits: {words}")
        assert status(run).phase == "pending"
        return status(run).reason

    def let_go(self, run: str) -> RunStatus:
        mark = self.jobs.root / "go"
        mark.write_text("")
        self.jobs.engine.copy_to(run, mark, "checkpoints/go")
        return self.jobs.wait(run)


def test_a_waiting_run_names_the_resource_and_its_holder(jobs: Jobs) -> None:
    gpus = Gpus(jobs, "a", "b")
    gpus.submit("holder", 2)
    assert gpus.until_holding("holder") == jobs.place.shown_gpus("a", "b")
    gpus.submit("waiter", 1)
    reason = gpus.until_waiting("waiter", "waits for", "1 GPU", "0 free", "holder")
    assert reason in jobs.engine.explain("waiter").headline
    assert [(run.name, run.phase) for run in jobs.engine.list()] == [("waiter", "pending"), ("holder", "running")]
    assert gpus.let_go("holder").phase == "succeeded"
    gpus.until_holding("waiter")
    assert gpus.let_go("waiter").phase == "succeeded"


def test_first_come_first_served(jobs: Jobs) -> None:
    """A small later run does not pass a large earlier one, although it would fit; one without GPUs does."""
    gpus = Gpus(jobs, "a", "b")
    gpus.submit("first", 1)
    gpus.until_holding("first")
    gpus.submit("large", 2)
    gpus.until_waiting("large", "2 GPUs", "1 free", "first")
    gpus.submit("small", 1)
    gpus.until_waiting("small", "large")  # it would delay that one
    free = jobs.run("print('passes')", name="none", environment=gpus.environment)
    assert free.phase == "succeeded"
    gpus.let_go("first")
    assert gpus.until_holding("large") == jobs.place.shown_gpus("a", "b")
    gpus.until_waiting("small", "large")
    gpus.let_go("large")
    gpus.until_holding("small")


def test_priority_goes_first(jobs: Jobs) -> None:
    gpus = Gpus(jobs, "a")
    gpus.submit("holder", 1)
    gpus.until_holding("holder")
    gpus.submit("later", 1)
    gpus.until_waiting("later", "waits for")
    gpus.submit("urgent", 1, priority=5)
    gpus.until_waiting("urgent", "waits for")
    gpus.let_go("holder")
    gpus.until_holding("urgent")
    assert jobs.engine.status("later").phase == "pending"


def test_gpus_of_concurrent_runs_are_disjoint(jobs: Jobs) -> None:
    gpus = Gpus(jobs, "a", "b", "c", "d")
    held = []
    for name in ("one", "two"):
        gpus.submit(name, 1, nodes=2)
        jobs.until_said(name, "holds", times=2)
        held += [line.split()[1] for line in jobs.text(name).splitlines()]
    assert sorted(set(held)) == jobs.place.shown_gpus("a", "b", "c", "d") and len(held) == 4


def test_without_gpus_none_is_seen(jobs: Jobs) -> None:
    code = "import os, json; print(json.dumps({n: v for n, v in os.environ.items() if n.endswith('VISIBLE_DEVICES')}))"
    environment = {**jobs.place.with_gpus("a", "b"), "CUDA_VISIBLE_DEVICES": "0,1"}
    run = jobs.run(code, environment=environment)
    seen = json.loads(jobs.text(run.name))
    assert seen["CUDA_VISIBLE_DEVICES"] == "" and set(seen.values()) <= {"", "void"}


def test_a_gpu_is_free_again_after_every_kind_of_end(jobs: Jobs) -> None:
    gpus = Gpus(jobs, "a")
    codes = {"exits": "import sys; sys.exit(3)", "dies": "import os; os.kill(os.getpid(), 9)", "ends": "pass"}
    for name, code in codes.items():
        jobs.run(code, name=name, gpus=1, environment=gpus.environment)
    stopped = gpus.submit("stopped", 1)
    gpus.until_holding("stopped")
    jobs.engine.stop(stopped.name)
    gpus.submit("last", 1)
    assert gpus.until_holding("last") == jobs.place.shown_gpus("a")


def test_a_retry_keeps_its_gpus(jobs: Jobs) -> None:
    gpus = Gpus(jobs, "a")
    code = """
import os, sys
print(os.environ.get("CUDA_VISIBLE_DEVICES", "-"))
sys.exit(os.environ["LONGBOAT_ATTEMPT"] == "0")
"""
    jobs.submit(code, name="retried", gpus=1, retries={"count": 1, "backoff": "1s"}, environment=gpus.environment)
    jobs.until_phase("retried", "recovering")
    gpus.submit("other", 1)
    if not jobs.place.keeps_gpus_for_a_retry:
        gpus.until_holding("other")
        gpus.let_go("other")
    assert jobs.wait("retried").phase == "succeeded"
    assert jobs.text("retried").split() == jobs.place.shown_gpus("a") * 2
    if jobs.place.keeps_gpus_for_a_retry:
        gpus.until_holding("other")


def test_memory_and_cpus_are_waited_for_too(jobs: Jobs) -> None:
    """Two runs that take more than half each; the other tests on this machine may have the rest."""
    cpus = round(_most_cpus(jobs) * 0.6, 1)
    gpus = Gpus(jobs)
    jobs.submit(HOLDS, name="wide", cpus=cpus)
    jobs.until_said("wide", "holds")
    jobs.submit("print('narrow')", name="narrow", cpus=cpus)
    gpus.until_waiting("narrow", "CPUs", "wide")
    jobs.run("print('unstated')", name="unstated")
    gpus.let_go("wide")
    assert jobs.wait("narrow").phase == "succeeded"


def _most_cpus(jobs: Jobs) -> float:
    """As many CPUs as the place has, found by asking for too many."""
    from longboat.core.errors import Refused

    try:
        jobs.engine.plan(jobs.submission("print(1)", cpus=4096))
    except Refused as refusal:
        return float((refusal.hint or "").split("cpus: ")[1].split("`")[0])
    raise AssertionError("4096 CPUs were not refused")


def test_a_run_starts_after_the_one_before_it_has_succeeded(jobs: Jobs) -> None:
    """A run starts when the one before it has succeeded; after one that failed it ends, with the reason."""
    if not jobs.place.has_own_gate:
        with pytest.raises(Refused, match="Kueue admits its runs by itself"):
            jobs.submit("print('second')", name="second", after=["first"])
        return
    first = jobs.submit(HOLDS, name="first")
    second = jobs.submit("print('second')", name="second", after=[first.name])
    third = jobs.submit("print('third')", name="third", after="second")
    gpus = Gpus(jobs)
    gpus.until_waiting("second", "waits until first (running) has succeeded")
    assert "waits until first (running) has succeeded" in jobs.engine.explain("second").headline
    gpus.until_waiting("third", "second (pending)")
    assert gpus.let_go("first").phase == "succeeded"
    assert jobs.wait(third.name).phase == "succeeded"
    before = jobs.engine.status(second.name)
    assert (before.ended or 0) <= (jobs.engine.status(third.name).started or 0)
    failing = jobs.submit(HOLDS + "raise SystemExit(3)", name="failing")
    never = jobs.submit("print('never')", name="never", after=[failing.name], retries=2)
    gpus.until_waiting("never", "failing")
    assert gpus.let_go("failing").phase == "failed"
    ended = jobs.wait(never.name)
    assert (ended.phase, ended.exit_code, ended.cause, ended.attempt) == ("failed", 209, "dependency", 0)
    assert "failing, which failed (exit code 3)" in ended.reason and jobs.text(never.name) == ""
    with pytest.raises(Refused, match="failing failed"):
        jobs.submit("", name="late", after="failing")
    with pytest.raises(NotFound, match="nothing"):
        jobs.submit("", name="late", after="nothing")


def test_a_waiting_run_goes_before_others(jobs: Jobs) -> None:
    gpus = Gpus(jobs, "a")
    gpus.submit("holder", 1)
    gpus.until_holding("holder")
    for name in ("early", "urgent"):
        gpus.submit(name, 1)
        gpus.until_waiting(name, "GPU")
    if not jobs.place.has_own_gate:
        with pytest.raises(UsageError, match="Kueue, which knows priorities by its own classes"):
            jobs.place.again().set_priority("urgent", 7)
        return
    jobs.place.again().set_priority("urgent", 7)
    jobs.until(lambda: jobs.engine.status("urgent").priority == 7, "its priority has changed")
    with pytest.raises(UsageError, match="does not wait"):
        jobs.engine.set_priority("holder", 7)
    gpus.let_go("holder")
    gpus.until_holding("urgent")
    assert jobs.engine.status("early").phase == "pending"
    gpus.let_go("urgent")
    gpus.until_holding("early")
