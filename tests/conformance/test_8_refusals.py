"""Promise 8: an impossible request is refused at once, with the reason and the nearest thing that would fit."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.core.errors import LongboatError, Refused
from tests.conformance.conftest import Jobs

REFUSED: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"gpus": 3}, ["3 GPUs", "there are 2"], ["gpus: 2"]),
    ({"nodes": 3, "gpus": 1}, ["3 GPUs", "there are 2"], ["nodes: 2"]),
    ({"roles": {"a": {"gpus": 2}, "b": {"gpus": 1}}}, ["3 GPUs"], ["2 GPUs"]),
    ({"gpus": "H100:1"}, ["H100"], ["type"]),
    ({"cpus": 4096}, ["4096 CPUs"], ["cpus:"]),
    ({"memory": "900Ti"}, ["memory"], ["memory:"]),
    ({"nodes": 4, "cpus": 2000}, ["8000 CPUs over 4 nodes"], ["per node"]),
    ({"shm": "900Ti"}, ["shm"], ["shm:"]),
    ({"disk": "1Pi"}, ["disk"], ["disk:"]),
    ({"secrets": ["NO_SUCH_SECRET"]}, ["NO_SUCH_SECRET"], ["NO_SUCH_SECRET"]),
    ({"gpus": 3, "cpus": 4096, "memory": "900Ti"}, ["GPUs", "CPUs", "memory"], ["gpus: 2", "cpus:", "memory:"]),
]
"""Fields of a job, what the reason must name, what the hint must name. The place has two GPUs of no known type."""


@pytest.mark.parametrize(("fields", "reason", "hint"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_with_reason_and_nearest(
    jobs: Jobs, fields: dict[str, Any], reason: list[str], hint: list[str]
) -> None:
    check_refused(jobs, fields, reason, hint)


def test_what_this_engine_cannot_honour_is_refused_and_not_ignored(jobs: Jobs) -> None:
    for fields, reason, hint in jobs.place.unsupported:
        check_refused(jobs, fields, reason, hint)


def check_refused(jobs: Jobs, fields: dict[str, Any], reason: list[str], hint: list[str]) -> None:
    submission = jobs.submission("print(1)", environment=jobs.place.with_gpus("a", "b"), **fields)
    for ask in (jobs.engine.plan, jobs.engine.submit):
        with pytest.raises(Refused) as refusal:
            ask(submission)
        for words in reason:
            assert words in refusal.value.message
        # The quota of a queue is for all nodes together: what fits into it is named with the number of nodes.
        is_quota = "another queue" in (refusal.value.hint or "") and not jobs.place.has_own_gate
        for words in ("nodes: 1", "cpus: ") if is_quota and hint == ["per node"] else hint:
            assert words in (refusal.value.hint or "")
    assert list(jobs.engine.list()) == []
    assert jobs.place.traces("job", "") == []


def test_no_gpus_at_all(jobs: Jobs) -> None:
    with pytest.raises(Refused) as refusal:
        jobs.submit("print(1)", gpus=1)
    assert "gpus: 0" in (refusal.value.hint or "")


def test_what_just_fits_is_not_refused(jobs: Jobs) -> None:
    run = jobs.run("print(1)", nodes=2, gpus=1, environment=jobs.place.with_gpus("a", "b"))
    assert run.phase == "succeeded"


def test_code_that_is_not_there(jobs: Jobs) -> None:
    with pytest.raises(LongboatError):
        jobs.submit("print(1)", workdir="./nowhere")
    assert list(jobs.engine.list()) == []


def test_a_checkpoint_that_is_not_there(jobs: Jobs) -> None:
    with pytest.raises(LongboatError, match="no complete checkpoint"):
        jobs.submit("print(1)", checkpoints={"resume": "nobody"})
    assert list(jobs.engine.list()) == []
