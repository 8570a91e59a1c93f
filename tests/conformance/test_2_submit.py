"""Promise 2: `submit` is idempotent by run id."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from longboat.core.errors import NotFound, UsageError
from tests.conformance.conftest import Jobs


def test_the_same_id_again_is_the_run_that_exists(jobs: Jobs) -> None:
    first = jobs.submit("print('once')", run_id="chosen")
    again = jobs.submit("print('other code')", run_id="chosen")
    assert (again.name, again.uid) == (first.name, first.uid) == ("chosen", first.uid)
    jobs.wait("chosen")
    ended = jobs.submit("print('other code')", run_id="chosen")
    assert (ended.uid, ended.phase) == (first.uid, "succeeded")
    assert jobs.text("chosen") == "once\n"
    assert [run.name for run in jobs.engine.list()] == ["chosen"]


def test_the_same_id_with_another_job_is_a_mistake(jobs: Jobs) -> None:
    first = jobs.submit("print('once')", run_id="chosen")
    with pytest.raises(UsageError, match="chosen exists already, of another job: `nodes`, `labels` differ") as caught:
        jobs.submit("print('once')", run_id="chosen", nodes=2, labels={"a": "b"})
    assert "longboat rm chosen" in str(caught.value.hint)
    assert jobs.wait("chosen").uid == first.uid and jobs.text("chosen") == "once\n"


@pytest.mark.parametrize("run_id", ["same", None])
def test_four_at_once(jobs: Jobs, run_id: str | None) -> None:
    """One id: one run whose ranks start once. No id: four runs with four names."""
    submission = jobs.submission("print('started')", run_id=run_id)
    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(4)
    answers = fork.SimpleQueue()

    def submit() -> None:
        engine = jobs.place.again()
        ready.wait()
        run = engine.submit(submission)
        answers.put((run.name, run.uid))

    submitters = [fork.Process(target=submit) for _ in range(4)]
    for submitter in submitters:
        submitter.start()
    results = [answers.get() for _ in submitters]
    for submitter in submitters:
        submitter.join()
    names = sorted({name for name, _ in results})
    assert names == (["same"] if run_id else ["job", "job-2", "job-3", "job-4"])
    assert len(set(results)) == len(names)
    for name in names:
        assert jobs.wait(name).phase == "succeeded"
        assert jobs.text(name) == "started\n"


def test_names_are_taken_in_order_and_kept_short(jobs: Jobs) -> None:
    long = "a" * 40
    names = [jobs.submit(name=long).name for _ in range(2)]
    assert names == [long, long[:38] + "-2"]
    assert [jobs.submit(name="x").name for _ in range(3)] == ["x", "x-2", "x-3"]


@pytest.mark.parametrize("run_id", ["", "../up", "Upper", "a/b", "-x", "x-", "a" * 41, "1x", "a\n"])
def test_a_run_id_must_be_a_name(jobs: Jobs, run_id: str) -> None:
    with pytest.raises(UsageError):
        jobs.submit(run_id=run_id)
    assert list(jobs.engine.list()) == []


def test_an_unknown_run_is_not_found(jobs: Jobs) -> None:
    for name in ("nothing", "../home", ""):
        with pytest.raises(NotFound):
            jobs.engine.status(name)
        with pytest.raises(NotFound):
            jobs.engine.stop(name)
        with pytest.raises(NotFound):
            jobs.engine.delete(name)


def test_the_code_is_that_of_the_moment_of_submission(jobs: Jobs) -> None:
    run = jobs.submit("import time; time.sleep(0.3); print(open('data.txt').read())", files={"data.txt": "before"})
    (jobs.root / "code" / "data.txt").write_text("after")
    assert jobs.wait(run.name).phase == "succeeded"
    assert jobs.text(run.name) == "before\n"
    again = jobs.wait(jobs.engine.submit(jobs.place.again().resubmission(run.name)).name)
    assert again.name != run.name and jobs.text(again.name) == "before\n"
    with pytest.raises(NotFound):
        jobs.engine.resubmission("nothing")


def test_a_list_shows_the_newest_first_and_a_status_shows_all(jobs: Jobs) -> None:
    for name in ("one", "two"):
        jobs.run("import longboat; longboat.step(3, loss=0.5)", name=name, labels={"team": "vision"})
    assert [run.name for run in jobs.engine.list()] == ["two", "one"]
    brief = jobs.engine.list()[0]
    assert (brief.phase, brief.exit_code, brief.nodes, brief.gpus) == ("succeeded", 0, 1, 0)
    assert brief.engine == jobs.engine.name and brief.labels == {"team": "vision"}
    full = jobs.engine.status("two")
    assert full.spec is not None and full.spec.name == "two"
    assert full.created <= (full.started or 0) <= (full.ended or 0)
    assert [(rank.rank, rank.node, rank.alive, rank.exit_code) for rank in full.ranks] == [(0, "worker-0", False, 0)]
    assert full.step == 3
    assert [(step, value) for step, _, value in jobs.place.again().metrics_of("two").series["loss"]] == [(3, 0.5)]


def test_a_plan_shows_the_layout_and_changes_nothing(jobs: Jobs, tmp_path: Path) -> None:
    plan = jobs.engine.plan(jobs.submission("print(1)", nodes=2, procs=2, retries=2))
    assert plan.layout is not None and plan.layout.world_size == 4
    assert {"pack", "start", "retry"} <= {action.kind for action in plan.actions}
    assert list(jobs.engine.list()) == []


def test_lists_tell_the_step_of_a_run_that_runs(jobs: Jobs) -> None:
    code = "import longboat, time; longboat.step(7, loss=0.25); print('ready', flush=True); time.sleep(600)"
    run = jobs.submit(code, grace="1s")
    jobs.until_said(run.name, "ready")

    def is_told() -> bool:
        listed = [each for each in jobs.engine.list() if each.name == run.name]
        return [(each.step, each.metrics) for each in jobs.engine.with_steps(listed)] == [(7, {"loss": 0.25})]

    jobs.until(is_told, "the step is told")
    jobs.until(lambda: jobs.engine.status(run.name).ranks[0].usage.memory, "the rank is sampled")
    assert jobs.engine.metrics_of(run.name).system["0"]["memory"][0][1] > 1 << 20
    jobs.engine.stop(run.name)
