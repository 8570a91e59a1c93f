"""The gate at work on a real API server, with nodes that run nothing: what runs hold is what their pods really hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.gate import serve, waiting_runs
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import POD
from testbed import api
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.cluster
LONG_S = 120.0


@pytest.fixture(autouse=True)
def settings(bench: Bench) -> None:
    """With a storage nobody asks simulated nodes for the last lines of their pods."""
    chosen = {"kubernetes": {"image": "x", "storage": {"path": "/kept"}}}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps(chosen))
    bench.engine.close()
    bench.engine = bench.open()


def pods_of(client: Client, run: str) -> dict[str, str]:
    """Name and phase by role."""
    bodies = client.list(POD, labels=names.pods_of(run)).items
    found = {body["metadata"]["labels"][names.ROLE]: body for body in bodies}
    return {role: f"{body['metadata']['name']} {body['status']['phase']}" for role, body in found.items()}


def submit_pair(bench: Bench, name: str, **fields: object) -> str:
    """Two roles, each with a node of one GPU; the first decides."""
    roles = {role: {"run": "sleep 1", "gpus": 1} for role in ("trainer", "reader")}
    submission = bench.submission("", name=name, run=None, roles=roles, ends=["trainer"], **fields)
    return bench.engine.submit(submission).name


def end_pod(client: Client, run: str, role: str, phase: str) -> None:
    """As its kubelet would say that it ended."""
    name, _, _ = pods_of(client, run)[role].partition(" ")
    client.patch(POD, name, {"status": {"phase": phase}}, subresource="status")


def wait_until_in(bench: Bench, run: str) -> None:
    def is_in() -> bool:
        bench.engine.status(run)
        found = pods_of(bench.engine.client, run)
        return len(found) == 2 and all(text.endswith("Running") for text in found.values())

    api.wait_for(f"both pods of {run} run", is_in, LONG_S, every_s=0.1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_an_ended_node_held_is_free_for_others(
    bench: Bench, kwok_nodes: Callable[..., list[str]], phase: str
) -> None:
    """Three GPUs: a run of two nodes, one of which has ended, leaves two for the next."""
    kwok_nodes("1:gpus=3,cpu=16,memory=64Gi")
    client = bench.engine.client
    first = submit_pair(bench, "first")
    wait_until_in(bench, first)
    end_pod(client, first, "reader", phase)
    (seen,) = serve._look(client)
    candidate = waiting_runs.candidate_of(seen, client.now(), {})
    assert candidate is not None
    assert set(candidate.placed) == {"trainer-0", "reader-0"} and not candidate.rest
    assert (candidate.made, candidate.ready) == (2, 2)
    second = submit_pair(bench, "second")
    wait_until_in(bench, second)
    assert pods_of(client, first)["trainer"].endswith("Running")


def test_a_pod_that_is_still_to_come_is_counted(bench: Bench, kwok_nodes: Callable[..., list[str]]) -> None:
    """Pods of an earlier attempt that have ended stand for nothing."""
    kwok_nodes("1:gpus=3,cpu=16,memory=64Gi")
    client = bench.engine.client
    first = submit_pair(bench, "first")
    wait_until_in(bench, first)
    end_pod(client, first, "reader", "Failed")
    name, _, _ = pods_of(client, first)["reader"].partition(" ")
    client.patch(POD, name, {"metadata": {"labels": {names.ATTEMPT: "7"}}})
    (seen,) = serve._look(client)
    candidate = waiting_runs.candidate_of(seen, client.now(), {})
    assert candidate is not None
    assert candidate.placed == ("trainer-0",) and [pod.name for pod in candidate.rest] == ["reader-0"]
