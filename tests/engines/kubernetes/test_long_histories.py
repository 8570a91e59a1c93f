"""A run that was tried again a thousand times: its state still fits into its record, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from longboat.core.runs import Attempt, Failure, RankReport
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.record_store import find_record, read_record, write_state
from longboat.engines.kubernetes.records import State
from longboat.kubeapi.client import Client
from testbed.clusters import Cluster
from tests.engines.kubernetes.manifest_samples import record

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    with Client.open(namespace=namespace, environment={"KUBECONFIG": str(cluster.kubeconfig)}) as client:
        yield client


def failed(number: int) -> Attempt:
    """As much as a termination message holds."""
    tail = tuple(f"line {line} of what it said last " + "x" * 60 for line in range(20))
    report = RankReport(rank=3, node="worker-0", exit_code=1, cause="exception", traceback="t" * 1500, tail=tail)
    failure = Failure(cause="exception", exit_code=1, message=f"attempt {number}: " + "m" * 300, rank=report)
    return Attempt(number=number, started=float(number), ended=number + 1.0, failure=failure, resumed_from="step-1")


@pytest.mark.parametrize("count", [50, 1001])
def test_all_attempts_fit_and_the_latest_keep_everything(client: Client, namespace: str, count: int) -> None:
    body = objects.record_object(record(namespace=namespace), State())
    version = client.create(body)["metadata"]["resourceVersion"]
    tails = {f"{count - 1}/worker-{node}": "last words\n" * 1000 for node in range(16)}
    state = State(phase="recovering", attempt=count, attempts=tuple(map(failed, range(count))), tails=tails)
    write_state(client, "train", version, state)
    kept = read_record(find_record(client, "train"))[1]
    assert [attempt.number for attempt in kept.attempts] == list(range(count))
    assert all(attempt.failure and attempt.failure.exit_code == 1 for attempt in kept.attempts)
    assert all(attempt.failure and attempt.failure.rank and attempt.failure.rank.rank == 3 for attempt in kept.attempts)
    assert kept.attempts[-20:] == state.attempts[-20:] and kept.tails == tails
    assert count > 50 or kept == state
    write_state(client, "train", find_record(client, "train")["metadata"]["resourceVersion"], kept)
    assert msgspec.json.encode(read_record(find_record(client, "train"))[1]) == msgspec.json.encode(kept)
