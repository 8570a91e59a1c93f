"""1,000 runs handed over and waited for by one Python process, on simulated nodes, without a server of Longboat's."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import grounds

RUNS = 1_000
FEW = 100
NODES = "50:cpu"
RUN_FOR = "2s"
FLEETS: dict[str, dict[str, Any]] = {"": {}, " that ask for a CPU": {"cpus": 1}}
PREFIX = "testbed.longboat.test/"

# A process of its own, so that its memory is that of the client alone.
PROGRAM = """
import os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from longboat import sdk

runs, few, threads, prefix, fields = {runs}, {few}, 8, {prefix!r}, {fields}
place = sdk.engine("kubernetes")
began = time.perf_counter()
memory = {{}}

def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024

def one(number):
    run = sdk.run(name=f"{{prefix}}-{{number}}", run="python3 train.py", base="code", engine=place, **fields)
    return run

def end(run):
    ended = run.wait()
    assert ended.phase == "succeeded", ended
    return ended

with ThreadPoolExecutor(threads) as pool:
    for count, names in ((few, range(few)), (runs, range(few, runs))):
        handed = list(pool.map(one, names))
        if count == runs:
            submitted = time.perf_counter() - began
        list(pool.map(end, handed))
        memory[count] = peak()
print(submitted, time.perf_counter() - began, memory[few], memory[runs], place.client.requests)
"""


def measure() -> dict[str, float]:
    figures: dict[str, float] = {}
    with grounds.cluster("bench-thousand", "--nodes", NODES) as ground:
        (ground.folder / "code").mkdir()
        (ground.folder / "code" / "train.py").write_text("print('hello')\n")
        ends = {"metadata": {"annotations": {PREFIX + "run-for": RUN_FOR}}}
        # With a storage nobody asks simulated machines for the last lines of a log.
        ground.set(image=grounds.PYTHON_IMAGE, pod=ends, storage={"path": "/srv/runs"}, allow_host_paths=True)
        for fleet, fields in FLEETS.items():
            figures.update(of_fleet(ground, fleet, fields))
    return figures


def of_fleet(ground: grounds.Ground, fleet: str, fields: dict[str, Any]) -> dict[str, float]:
    program = PROGRAM.format(runs=RUNS, few=FEW, prefix="asking" if fields else "plain", fields=repr(fields))
    done = subprocess.run(
        [sys.executable, "-c", program], env=ground.environment, cwd=ground.folder, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"1,000 runs{fleet} failed")
    submitted, ended, few, all_, requests = map(float, done.stdout.split())
    return {
        f"{RUNS:,} runs{fleet}: until all had ended, s": ended,
        f"{RUNS:,} runs{fleet}: for each, s": ended / RUNS,
        f"{RUNS:,} runs{fleet}: the client's memory after {FEW}, MiB": few,
        f"{RUNS:,} runs{fleet}: the client's memory after all, MiB": all_,
        f"{RUNS:,} runs{fleet}: requests for each": requests / RUNS,
    }


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:80} {value:10.3f}")
