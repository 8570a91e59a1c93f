"""The JobSet controller at work."""

from __future__ import annotations

import pytest

from testbed import api, jobset
from testbed.fixtures import Kubectl

IMAGE = "longboat.test/python:latest"


def container(*command: str) -> api.Object:
    small = {"requests": {"cpu": "10m"}}
    return {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": small,
    }


@pytest.mark.pods("controllers")
def test_a_job_set_of_two_pods_finishes(kubectl: Kubectl, cluster_api: api.Api, namespace: str) -> None:
    code = "import os, socket; print(os.environ['JOB_COMPLETION_INDEX'], socket.gethostname())"
    item = jobset.job_set("two", namespace, {"containers": [container("python3", "-c", code)]}, pods=2)
    cluster_api.create(item)
    kubectl("wait", "--for=condition=Completed", "jobset/two", "--timeout=90s")
    logs = kubectl("logs", "--selector=jobset.sigs.k8s.io/jobset-name=two", "--tail=-1")
    assert sorted(logs.split("\n")) == ["", "0 two-main-0-0", "1 two-main-0-1"]
