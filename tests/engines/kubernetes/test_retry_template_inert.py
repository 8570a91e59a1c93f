"""Templates do nothing in a cluster with JobSet and Kueue, even where Kueue takes every job into a default queue."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes import names
from longboat.kubeapi.kinds import JOB, JOBSET, POD
from testbed import api, kueue
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench

pytestmark = [pytest.mark.pods("controllers"), pytest.mark.soak]

FLAKY = 'import os, sys; sys.exit(0 if os.environ["LONGBOAT_ATTEMPT"] == "1" else 5)'


@pytest.fixture
def default_queue(cluster: Cluster, namespace: str) -> None:
    """A LocalQueue of the name `default`: Kueue puts jobs there that name no queue."""
    objects = kueue.queue(namespace, namespace, {"cpu": "8", "memory": "1Pi", "ephemeral-storage": "1Pi"})
    objects[2]["metadata"]["name"] = "default"
    api.Api(cluster).apply(objects)


@pytest.mark.usefixtures("default_queue")
def test_a_template_never_runs_and_goes_with_its_run(bench: Bench) -> None:
    engine, client = bench.engine, bench.engine.client
    retries = {"count": 1, "backoff": "0s"}
    run = engine.submit(bench.submission(FLAKY, nodes=2, cpus=0.05, retries=retries, queue="default")).name
    ended = engine.wait(run, timeout_s=180)
    assert (ended.phase, ended.attempt) == ("succeeded", 1), ended.reason
    marks = f"{names.KIND}=template"
    templates = [one for kind in (JOBSET, JOB) for one in client.list(kind, labels=marks).items]
    assert templates, "there is one"
    assert all(one["spec"]["suspend"] for one in templates), "Kueue has not started it"
    assert all(one["metadata"]["name"].startswith(names.template_name(run)) for one in templates)
    pods = [pod["metadata"]["labels"] for pod in client.list(POD).items]
    assert len(pods) == 4 and all(labels[names.RUN] == run for labels in pods), "two attempts of two nodes, no more"
    engine.delete(run)
    assert [one for kind in (JOBSET, JOB) for one in client.list(kind, labels=marks).items] == []
