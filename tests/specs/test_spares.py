"""`spares` of a job: what it is together with, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.core.errors import JobError
from longboat.core.jobs import Job
from longboat.specs.dump import job_to_mapping
from longboat.specs.read import read_job

GANG: dict[str, Any] = {"run": "x", "nodes": 4, "gpus": 8, "spares": 1, "retries": 3}


def read(**fields: Any) -> Job:
    return read_job([], fields={**GANG, **fields}, environment={}).job


def test_a_spare_holds_what_a_node_holds_and_has_no_rank() -> None:
    job = read(procs=2)
    assert (job.nodes, job.pods, job.spares, job.ranks, job.gpus) == (4, 5, 1, 8, 40)
    roles = {"ps": {"nodes": 2, "gpus": 0, "spares": 0}, "worker": {"nodes": 3, "gpus": 1}}
    two = read(nodes=1, roles=roles)
    assert [(role.name, role.nodes, role.spares, role.pods) for role in two.roles] == [
        ("ps", 2, 0, 2),
        ("worker", 3, 1, 4),
    ]


def test_it_is_written_as_it_was_read() -> None:
    job = read()
    fields = job_to_mapping(job)
    assert fields["spares"] == 1 and read_job([], fields=fields, environment={}).job.spares == 1
    assert "spares" not in job_to_mapping(read(spares=0))


@pytest.mark.parametrize(
    ("fields", "says", "hint"),
    [
        ({"retries": 0}, "has spares and no retries", "`retries: 3`"),
        ({"retries": {"count": 2, "restart": "new"}}, "has spares and `restart: new`", "drop `spares`"),
        ({"retries": {"count": 2, "on": ["exit", 3]}}, "and `retries.on: [exit, 3]`: after the loss", "[lost, preem"),
        ({"nodes": 1}, "has one node and a spare", "`nodes: 2`"),
        ({"nodes": "2-4"}, "has spares and a range of nodes", "or the range alone"),
        ({"spares": 101}, "from 0 to 100", ""),
        ({"spares": -1}, "from 0 to 100", ""),
        ({"nodes": 10_000}, "10001 nodes together", ""),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(fields: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(JobError) as refused:
        read(**fields)
    assert says in str(refused.value) and hint in "".join(str(each.hint) for each in refused.value.problems)


@pytest.mark.parametrize("retries", ["x", {"count": "y"}, [3]])
def test_retries_that_cannot_be_read_are_the_only_thing_said_of_them(retries: object) -> None:
    with pytest.raises(JobError) as refused:
        read(retries=retries)
    assert len(refused.value.problems) == 1 and "spares" not in str(refused.value)


@pytest.mark.parametrize("cause", ["lost", "preemption", 208])
def test_losses_that_are_tried_again_are_what_spares_are_for(cause: str | int) -> None:
    assert read(retries={"count": 2, "on": ["exit", cause]}).spares == 1
