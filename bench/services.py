"""Autoscaler and controller over one trace of runs on simulated nodes: CPU seconds and requests, of several versions.

python bench/services.py [SRC]...    SRC: the `src` folder of another checkout, measured over the same trace (default:
                                     this one)

The trace is handed over by the same version: gangs of one to four nodes with eight GPUs each, and single GPUs, on pools
that begin empty. Each request to the API server is counted where it is written to the connection, a watch once.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import grounds
from thousand import PREFIX

RUNS = 30
SEED = 12
RUN_FOR = "8s"
MACHINE = {"cpus": 32, "memory": "256Gi", "gpus": 8}
POOLS = {"pools": [{"name": "gpu", "max": 12, "boot": "6s", "machine": MACHINE}], "settings": {"idle": "15s"}}
SERVICES = {
    "autoscaler": ("autoscaler", "run", "--pools", "pools.yaml", "--home", grounds.NAMESPACE),
    "controller": ("controller", "--only", grounds.NAMESPACE),
}

# The command itself, with a thread that writes down what it has used so far.
COUNTED = """
import http.client, os, runpy, sys, threading, time
count = 0
write = http.client.HTTPConnection.putrequest
def putrequest(*arguments, **keys):
    global count
    count += 1
    return write(*arguments, **keys)
http.client.HTTPConnection.putrequest = putrequest
def note(path):
    while True:
        with open(path + ".new", "w") as file:
            file.write(f"{count} {time.process_time()}")
        os.replace(path + ".new", path)
        time.sleep(0.25)
threading.Thread(target=note, args=(sys.argv.pop(1),), daemon=True).start()
runpy.run_module("longboat", run_name="__main__", alter_sys=True)
"""
TRACE = """
import json, sys, time
from longboat import sdk
place = sdk.engine("kubernetes")
began = time.monotonic()
def submit(fields):
    sdk.run(run="python3 train.py", base="code", engine=place, **fields)
(_, first), *others = json.loads(sys.argv[1])
while True:
    try:
        submit(first)
        break
    except Exception:  # refused until the autoscaler has said what it can add
        assert time.monotonic() - began < 60, "no run is taken"
        time.sleep(0.5)
began = time.monotonic()
for at, fields in others:
    time.sleep(max(0.0, began + at - time.monotonic()))
    submit(fields)
while any(not run.is_final for run in place.list()):
    time.sleep(1.0)
phases = [run.phase for run in place.list()]
assert phases.count("succeeded") == len(phases), phases
time.sleep(20.0)  # until the last machine was given back
print(time.monotonic() - began)
"""


def trace() -> list[tuple[float, dict[str, Any]]]:
    chance, at, found = random.Random(SEED), 0.0, []
    for number in range(RUNS):
        at += chance.expovariate(1 / 1.5)
        nodes = chance.choice((1, 1, 1, 2, 4))
        gpus = 8 if nodes > 1 else chance.choice((1, 2, 8))
        found.append((at, {"name": f"run-{number}", "nodes": nodes, "gpus": gpus}))
    return found


def measure(*sources: str) -> dict[str, float]:
    return {
        f"{Path(source).parent.name if source else 'longboat'}: {name}": value
        for source in sources or ("",)
        for name, value in of_version(source).items()
    }


def of_version(source: str) -> dict[str, float]:
    with grounds.cluster("bench-services", "--nodes", "1:cpu") as ground:
        environment = {**ground.environment, **({"PYTHONPATH": source} if source else {})}
        (ground.folder / "code").mkdir()
        (ground.folder / "code" / "train.py").write_text("print('hello')\n")
        (ground.folder / "pools.yaml").write_text(json.dumps(POOLS))
        ends = {"metadata": {"annotations": {PREFIX + "run-for": RUN_FOR}}}
        ground.set(image=grounds.PYTHON_IMAGE, pod=ends, storage={"path": "/srv/runs"}, allow_host_paths=True)
        services = {}
        try:
            for name, words in SERVICES.items():
                command = [sys.executable, "-c", COUNTED, f"{name}.used", *words]
                with open(ground.folder / f"{name}.log", "wb") as log:
                    services[name] = subprocess.Popen(
                        command, env=environment, cwd=ground.folder, stdout=log, stderr=log
                    )
            done = subprocess.run(
                [sys.executable, "-c", TRACE, json.dumps(trace())],
                env=environment,
                cwd=ground.folder,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            found = {"until all had ended and the machines were gone, s": float(done.stdout.split()[-1])}
            for name in SERVICES:
                requests, cpu = (ground.folder / f"{name}.used").read_text().split()
                found |= {f"{name}, requests": float(requests), f"{name}, CPU s": float(cpu)}
            return found
        finally:
            for process in services.values():
                process.terminate()
                process.wait()


if __name__ == "__main__":
    for name, value in measure(*sys.argv[1:]).items():
        print(f"{name}: {value:.2f}", flush=True)
