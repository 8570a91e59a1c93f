"""Pods that the tests of exec and logs speak to."""

from __future__ import annotations

import time
from typing import Any

from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import POD

SLEEPS = "import time; time.sleep(10**6)"
SAYS = "import time\nfor at in range(10**6): print('tick', at, flush=True); time.sleep(0.05)"


def pod_of(name: str, program: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "longboat.test/python:latest",
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def running(client: Client, name: str, program: str) -> str:
    client.create(pod_of(name, program))
    deadline = time.monotonic() + 120.0
    while client.get(POD, name)["status"].get("phase") not in ("Running", "Succeeded"):
        assert time.monotonic() < deadline, client.get(POD, name)["status"]
        time.sleep(0.1)
    return name
