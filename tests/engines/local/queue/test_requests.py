"""What the sizes of a job request of this machine. Which GPUs satisfy a request: `test_admission`."""

from __future__ import annotations

import msgspec

from longboat.core.jobs import Job
from longboat.engines.local.queue.requests import local_sizes, request_of, requests_of
from tests.engines.local.values import GiB, job, role


def elastic(low: int, high: int, **needs: object) -> Job:
    worker = msgspec.structs.replace(role("worker", nodes=high, **needs), min_nodes=low, max_nodes=high)
    return job(roles=(role("ps", nodes=2, cpus=1.0), worker))


def test_one_request_for_each_size_the_smallest_first() -> None:
    asked = requests_of(elastic(2, 4, gpus=2, cpus=3.0, memory=GiB))
    assert [each.gpu_count for each in asked] == [4, 6, 8]
    assert [each.cpus for each in asked] == [8.0, 11.0, 14.0] and [each.memory for each in asked] == [
        2 * GiB, 3 * GiB, 4 * GiB,
    ]  # fmt: skip
    assert requests_of(job(roles=(role("worker", nodes=3, gpus=1),))) == (
        request_of(job(roles=(role("worker", nodes=3, gpus=1),))),
    )


def test_a_job_that_asks_for_nothing_has_its_largest_size() -> None:
    worker = msgspec.structs.replace(role("worker", nodes=5), min_nodes=2, max_nodes=5)
    assert local_sizes(job(roles=(worker,))) == (5,)
    assert local_sizes(elastic(2, 3, memory=GiB)) == (2, 3)
