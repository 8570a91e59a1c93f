"""10,000 pods listed from a real API server: seconds and memory of a fresh process, against lightkube if it is there.

python bench/listing.py [PYTHON]    PYTHON: an interpreter that can import lightkube (default: LONGBOAT_BENCH_LIGHTKUBE)

The pods have no node and never run: what counts is their objects. The control plane is that of testbed/, started for
this and removed afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PODS = 10_000
TIMES = 5
NAME = "bench-listing"

# Of each: seconds until imported and opened, of the first list and of the fastest, CPU seconds of it, and memory.
MEASURED = """
import time
began = time.perf_counter()
{opening}
opened = time.perf_counter() - began
walls, cpus = [], []
for _ in range({times}):
    wall, cpu = time.perf_counter(), time.process_time()
    found = listed()
    walls.append(time.perf_counter() - wall)
    cpus.append(time.process_time() - cpu)
    if _ == 0:
        # Not ru_maxrss: a new process inherits its parent's.
        memory = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024
    assert len(found) == {pods}, len(found)
    del found
print(opened, walls[0], min(walls), min(cpus), memory)
"""
OURS = """
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import POD
from longboat.engines.kubernetes.slim_objects import SlimPod
client = Client.open()
def listed():
    return client.list(POD, into=SlimPod).items
"""
# The same objects as bytes, in one answer, looked at by nobody: what the server alone takes.
BARE = """
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import POD
client = Client.open()
def listed():
    content = client.request("GET", client.path(POD))
    return range({pods}) if len(content) > 1000 * {pods} else ()
"""
LIGHTKUBE = """
from lightkube import Client
from lightkube.resources.core_v1 import Pod
client = Client()
def listed():
    return list(client.list(Pod, chunk_size=500))
"""


def pod(number: int) -> dict[str, Any]:
    """As much as a pod of a training has: labels, environment, requests, volumes, tolerations."""
    env = [{"name": f"VARIABLE_{at}", "value": f"value {number}"} for at in range(10)]
    container = {
        "name": "main",
        "image": "longboat.test/python:latest",
        "command": ["python3", "train.py"],
        "env": env,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    labels = {"app.kubernetes.io/managed-by": "longboat", "longboat.dev/run": f"run-{number // 8}"}
    spec = {
        "schedulerName": "nobody",
        "containers": [container],
        "volumes": [{"name": "work", "emptyDir": {}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    meta = {"name": f"pod-{number}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def testbed(*arguments: str) -> str:
    command = [sys.executable, "-m", "testbed", *arguments, "--name", NAME]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def fill(environment: dict[str, str]) -> None:
    from longboat.kubeapi.client import Client
    from longboat.kubeapi.kinds import SERVICE_ACCOUNT

    with Client.open(environment=environment) as client, ThreadPoolExecutor(8) as pool:
        while client.find(SERVICE_ACCOUNT, "default") is None:
            time.sleep(0.05)
        list(pool.map(lambda number: client.create(pod(number)), range(PODS)))


def one(python: str, opening: str, environment: dict[str, str]) -> dict[str, float]:
    program = MEASURED.format(opening=opening.format(pods=PODS), times=TIMES, pods=PODS)
    done = subprocess.run([python, "-c", program], env=environment, check=True, capture_output=True, text=True)
    names = ("import and open, s", "first list, s", "fastest list, s", "CPU of the fastest, s", "memory, MiB")
    return dict(zip(names, map(float, done.stdout.split())))


def measure(peer: str = "") -> dict[str, float]:
    peer = peer or os.environ.get("LONGBOAT_BENCH_LIGHTKUBE", "")
    testbed("up", "--profile", "api")
    try:
        environment = {**os.environ, "KUBECONFIG": testbed("kubeconfig").strip()}
        fill(environment)
        figures = {f"longboat: {name}": value for name, value in one(sys.executable, OURS, environment).items()}
        bare = one(sys.executable, BARE, environment)["fastest list, s"]
        figures["the server alone, s"] = bare
        figures["longboat / the server alone: fastest list"] = figures["longboat: fastest list, s"] / bare
        if peer:
            for name, value in one(peer, LIGHTKUBE, environment).items():
                figures[f"lightkube: {name}"] = value
                figures[f"lightkube / longboat: {name.partition(',')[0]}"] = value / figures[f"longboat: {name}"]
        return figures
    finally:
        testbed("down")


if __name__ == "__main__":
    for name, value in measure(*sys.argv[1:2]).items():
        print(f"{name}: {value:.3f}")
