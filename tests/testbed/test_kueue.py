"""The Kueue controller at work: queued Jobs and JobSets."""

from __future__ import annotations

import pytest

from testbed import api, jobset, kueue
from testbed.fixtures import Kubectl
from tests.testbed.test_jobset import container


@pytest.mark.pods("controllers")
def test_a_job_waits_in_a_queue_until_there_is_quota(kubectl: Kubectl, cluster_api: api.Api, namespace: str) -> None:
    cluster_api.apply(kueue.queue(namespace, namespace, {"cpu": "5m"}))
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "queued", "namespace": namespace, "labels": {kueue.QUEUE_LABEL: namespace}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container("echo", "done")]}}},
    }
    cluster_api.create(job)
    path = api.path_of("Workload", kueue.VERSION, namespace)

    def conditions() -> dict[str, str]:
        listed = [one for item in cluster_api.items(path) for one in item.get("status", {}).get("conditions", [])]
        return {one["type"]: one["status"] for one in listed}

    api.wait_for("it is refused for now", lambda: conditions().get("QuotaReserved") == "False", 60.0)
    assert kubectl("get", "job", "queued", "-o", "jsonpath={.spec.suspend}") == "true"
    assert kubectl("get", "pods") == ""
    cluster_api.apply(kueue.queue(namespace, namespace, {"cpu": "1"}))
    kubectl("wait", "--for=condition=complete", "job/queued", "--timeout=90s")
    api.wait_for("Kueue has seen the end", lambda: conditions().get("Finished") == "True", 60.0)
    assert conditions()["Admitted"] == "True"
    assert kubectl("logs", "job/queued") == "done\n"


@pytest.mark.pods("controllers")
def test_a_queued_job_set_finishes(kubectl: Kubectl, cluster_api: api.Api, namespace: str) -> None:
    cluster_api.apply(kueue.queue(namespace, namespace, {"cpu": "1"}))
    item = jobset.job_set("both", namespace, {"containers": [container("true")]}, pods=2)
    item["metadata"]["labels"] = {kueue.QUEUE_LABEL: namespace}
    cluster_api.create(item)
    kubectl("wait", "--for=condition=Completed", "jobset/both", "--timeout=90s")
    listed = cluster_api.items(api.path_of("Workload", kueue.VERSION, namespace))
    assert [owner["kind"] for one in listed for owner in one["metadata"]["ownerReferences"]] == ["JobSet"]
