"""JobSet and Kueue, the real controllers: their gangs are watched, and get machines when machines would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from longboat.autoscaler.model.config import LoopPace
from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.kubeapi.kinds import JOBSET, Kind
from testbed import fixtures, jobset, kueue, profiles
from testbed.api import Api
from testbed.clusters import Cluster
from tests.autoscaler.stages import GPU, Stage, Told, job_of, wait_for

pytestmark = [pytest.mark.pods, pytest.mark.soak, pytest.mark.xdist_group("autoscaler-queues")]

WATCHED = LoopPace(interval_s=3600.0, least_s=0.05, settle_s=0.0)
"""Nothing is looked at but when a watch tells of it."""
CLUSTER_QUEUE = Kind("ClusterQueue", kueue.VERSION, "clusterqueues", is_namespaced=False)


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """The controllers on a real node, and KWOK for the machines."""
    profile = profiles.with_empty_fleet(profiles.combine(["jobset", "kueue"]))
    with fixtures.own_cluster("test-queues", profile, "controllers") as made:
        yield made


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    return own_cluster


def job_set(stage: Stage, name: str, labels: dict[str, str], pool_name: str = "gpu") -> dict[str, Any]:
    """Suspended; four pods of 8 GPUs."""
    template = job_of(name, stage.namespace, {POOL_LABEL: stage.name(pool_name)}, labels=labels)["spec"]["template"]
    body = jobset.job_set(name, stage.namespace, template["spec"], 4)
    body["metadata"]["labels"] = labels
    body["spec"]["suspend"] = True
    return body


def waiting(told: Told) -> dict[str, str]:
    return {one.run or one.pod or "": one.reason for one in told.turns[-1].plan.waiting} if told.turns else {}


def test_a_suspended_jobset_of_a_run_gets_its_machines_before_it_has_pods(stage: Stage) -> None:
    config = stage.config(stage.pool("gpu"), stage.pool("other"), pace=WATCHED, idle_s=3600.0)
    with stage.scaling(config) as told:
        wait_for("it has looked", lambda: told.turns)
        stage.client.create(job_set(stage, "by-hand", {}, "other"))
        run = {"longboat.dev/run": "train", "longboat.dev/attempt": "0"}
        stage.client.create(job_set(stage, "train", run))
        wait_for("four machines", lambda: len(stage.nodes("gpu")) == 4)
        assert stage.pods() == []
        stage.client.patch(JOBSET, "train", {"spec": {"suspend": False}}, namespace=stage.namespace)
        wait_for("the gang runs", lambda: len(stage.pods("Running")) == 4)
        assert len({one["spec"]["nodeName"] for one in stage.pods()}) == 4
    assert [result.action.count for result in told.results("grow")] == [4]
    assert stage.nodes("other") == [], "what somebody suspended by hand wants nothing"


def test_what_waits_in_a_queue_gets_machines_when_it_has_quota(stage: Stage, cluster_api: Api) -> None:
    queue = f"q-{stage.prefix}"
    for body in kueue.queue(queue, stage.namespace, {"cpu": "1000", GPU: "16"}):
        cluster_api.create(body)
    selector, labels = {POOL_LABEL: stage.name("gpu")}, {kueue.QUEUE_LABEL: queue}
    config = stage.config(stage.pool("gpu"), pace=WATCHED, idle_s=3600.0)
    with stage.scaling(config) as told:
        wait_for("it has looked", lambda: told.turns)
        for name, pods in (("large", 4), ("small", 2)):
            body = job_of(name, stage.namespace, selector, pods=pods, suspend=True)
            body["metadata"]["labels"] = labels
            stage.client.create(body)
        wait_for("the small one runs", lambda: len(stage.pods("Running")) == 2)
        wait_for("it is told why", lambda: "Kueue: " in waiting(told).get(f"{stage.namespace}/large", ""))
        assert len(stage.machines()) == 2, "no machine is bought for who has no quota"
        raised = kueue.queue(queue, stage.namespace, {"cpu": "1000", GPU: "64"})[1]
        stage.client.patch(CLUSTER_QUEUE, queue, {"spec": raised["spec"]})
        wait_for("both run", lambda: len(stage.pods("Running")) == 6)
    assert [result.action.count for result in told.results("grow")] == [2, 4]
