"""`longboat ps` of 1,000 runs, on this machine and on a real API server: seconds, requests and memory.

python bench/listed_runs.py [here|cluster]

On the cluster 100 wait at the gate and 100 run. The runs are their objects alone: records, Jobs that are suspended or
have ended, pods without a node. The control plane is that of testbed/, started for this and removed afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from listing import testbed  # noqa: E402

RUNS, WAITING, RUNNING = 1_000, 100, 100
NODES = 2
TIMES = 5

LISTED = """
import time
from longboat.engines.kubernetes.engine import KubernetesEngine
engine = KubernetesEngine()
walls = []
for _ in range({times}):
    began, before = time.perf_counter(), engine.client.requests
    found = engine.list()
    walls.append(time.perf_counter() - began)
    assert len(found) == {runs}, len(found)
memory = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024
print(walls[0], min(walls), engine.client.requests - before, memory)
"""


def objects(number: int) -> list[dict[str, Any]]:
    """Record, Job and pods of one run: the first hundred wait, the next hundred run, the others have ended."""
    from longboat.core.jobs import Job, Resources, Role
    from longboat.core.runs import Attempt
    from longboat.engines.kubernetes.manifests import objects as manifests
    from longboat.engines.kubernetes.manifests.workloads import workloads
    from longboat.engines.kubernetes.records import Gate, Record, State

    role = Role(name="worker", run=("python", "train.py"), nodes=NODES, resources=Resources(cpus=4, memory=16 << 30))
    job = Job(name="train", roles=(role,), ends=("worker",))
    name, now = f"train-{number}", time.time()
    record = Record(
        name=name,
        uid=f"{number:012x}",
        job=job,
        namespace="default",
        created=now,
        user="anna",
        gated_by="longboat",
        launcher="launcher",
    )
    reason = "needs 2 nodes with 4 CPUs and 16Gi; 1 has that free"
    waiting = State(reason=reason, gate=Gate(reason=reason), attempts=(Attempt(number=0, started=now),))
    running = State(phase="running", started=now, attempts=waiting.attempts, gate=Gate(let_in=now))
    ended = State(phase="succeeded", started=now, ended=now, exit_code=0, attempts=waiting.attempts)
    state = waiting if number < WAITING else running if number < WAITING + RUNNING else ended
    (body,) = workloads(record, 0, manifests.labels_of(record, 0), suspended=True)
    objects = [manifests.record_object(record, state), body]
    if state is not waiting:
        template = body["spec"]["template"]
        for index in range(NODES):
            meta = {**template["metadata"], "name": f"{name}-a0-worker-{index}"}
            spec = {**template["spec"], "schedulerName": "nobody"}
            objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return objects


def create(client: Any, number: int) -> None:
    from longboat.engines.kubernetes.manifests import objects as manifests

    record, *others = objects(number)
    record["metadata"]["labels"] |= {"longboat.dev/ended": "true"} if number >= WAITING + RUNNING else {}
    owner = manifests.owner_of(client.create(record))
    for each in others:
        for container in each["spec"].get("containers", []) or each["spec"]["template"]["spec"]["containers"]:
            container["image"] = "longboat.test/python:latest"
        if each["kind"] == "Job":
            each["metadata"]["ownerReferences"] = [owner]
        client.create(each)


def fill(environment: dict[str, str]) -> None:
    from longboat.kubeapi.client import Client
    from longboat.kubeapi.kinds import SERVICE_ACCOUNT

    with Client.open(environment=environment) as client, ThreadPoolExecutor(8) as pool:
        while client.find(SERVICE_ACCOUNT, "default") is None:
            time.sleep(0.05)
        list(pool.map(lambda number: create(client, number), range(RUNS)))


def ps(environment: dict[str, str], engine: str, runs: int) -> float:
    """A whole command, from its start to its last line: the fastest of several."""
    command = [sys.executable, "-m", "longboat", "ps", "-a", "--engine", engine]
    walls = []
    for _ in range(TIMES):
        began = time.perf_counter()
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        walls.append(time.perf_counter() - began)
        assert len(done.stdout.splitlines()) == (runs + 1 if runs else 0), done.stderr
    return min(walls)


def compared(name: str, none: float, many: float) -> dict[str, float]:
    """The ratio says what the runs cost, whatever machine this is."""
    return {f"{name}: `longboat ps -a` as a process, s": many, f"{name}: {RUNS:,} runs against none": many / none}


def here() -> dict[str, float]:
    """Ended runs of the embedded engine."""
    from longboat.core.jobs import Job, Role
    from longboat.core.runs import Attempt
    from longboat.engines.local.records import LocalRecord, LocalState, RunFolder

    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "LONGBOAT_HOME": home}
        none = ps(environment, "local", 0)
        now = time.time()
        job = Job(name="train", roles=(Role(name="worker", run=("python", "train.py")),), ends=("worker",))
        attempts = (Attempt(number=0, started=now, ended=now),)
        ended = LocalState(phase="succeeded", started=now, ended=now, exit_code=0, attempts=attempts)
        for number in range(RUNS):
            folder = RunFolder(Path(home) / "runs" / f"train-{number}")
            folder.directory.mkdir(parents=True)
            record = LocalRecord(
                name=folder.directory.name, uid=f"{number:012x}", job=job, base=home, created=now, user="anna"
            )
            folder.write_record(record)
            folder.write_state(ended)
        return compared("on this machine", none, ps(environment, "local", RUNS))


def measure(chosen: str = "") -> dict[str, float]:
    return {**(here() if chosen != "cluster" else {}), **(on_cluster() if chosen != "here" else {})}


def on_cluster() -> dict[str, float]:
    testbed("up", "--profile", "api")
    try:
        environment = {**os.environ, "KUBECONFIG": testbed("kubeconfig").strip()}
        none = ps(environment, "kubernetes", 0)
        fill(environment)
        program = LISTED.format(times=TIMES, runs=RUNS)
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        )
        first, fastest, requests, memory = map(float, done.stdout.split())
        return {
            "the first list, s": first,
            "the fastest list, s": fastest,
            "requests": requests,
            "memory, MiB": memory,
            **compared("on a cluster", none, ps(environment, "kubernetes", RUNS)),
        }
    finally:
        testbed("down")


if __name__ == "__main__":
    for name, value in measure(*sys.argv[1:2]).items():
        print(f"{name}: {value:.3f}")
