"""CPU seconds of the autoscaler's `decide` on 100, 1,000 and 5,000 nodes with ten pods each, and how they grow. JSON
to stdout.

    python bench/autoscaler.py

Two loads: `mixed` (nine of ten pods run, one waits, a gang per hundred nodes) and `cold` (all pods wait, no nodes).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.snapshot import (
    POOL_LABEL,
    AutoscalerSettings,
    ClusterSnapshot,
    Gang,
    Pool,
    SeenNode,
    SeenPod,
)
from longboat.fitting.model.nodes import HOSTNAME, ZONE, NodeShape, Taint, Toleration
from longboat.fitting.model.pods import NodeConstraints, Pod, PodShape
from longboat.fitting.model.quantities import Amounts

NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"
TAINT = Taint(key=GPU, effect="NoSchedule")
TOLERANT = NodeConstraints(tolerations=(Toleration(key=GPU, operator="Exists"),))
SIZES = (100, 1000, 5000)
PODS_EACH = 10
REPEATS = 3


def machine(name: str, gpus: int) -> NodeShape:
    has: Amounts = (("cpu", 96_000), ("memory", 1000 << 30), ("pods", 110))
    if not gpus:
        return NodeShape(name=name, labels={}, allocatable=has)
    return NodeShape(name=name, labels={"gpu": "a100"}, taints=(TAINT,), allocatable=tuple(sorted((*has, (GPU, gpus)))))


def pools() -> tuple[Pool, ...]:
    return (
        Pool(name="a100", machine=labelled(machine("a100", 8), "a100"), max=100_000, price=32.8, zones=("a", "b")),
        Pool(name="cpu", machine=labelled(machine("cpu", 0), "cpu"), max=100_000, price=4.1),
    )


def labelled(shape: NodeShape, pool: str) -> NodeShape:
    return NodeShape(
        name=shape.name, labels={**shape.labels, POOL_LABEL: pool}, taints=shape.taints, allocatable=shape.allocatable
    )


def node(number: int, gpus: int) -> SeenNode:
    name, pool = f"node-{number:05d}", "a100" if gpus else "cpu"
    shape = machine(name, gpus)
    labels = {**shape.labels, POOL_LABEL: pool, HOSTNAME: name, ZONE: "ab"[number % 2]}
    shape = NodeShape(name=name, labels=labels, taints=shape.taints, allocatable=shape.allocatable)
    return SeenNode(shape=shape, created=NOW - 86_400, ready_since=NOW - 86_000)


def pod(name: str, asks: dict[str, int], on: str | None) -> SeenPod:
    placing = TOLERANT if GPU in asks else NodeConstraints()
    value = Pod(name=name, shape=PodShape(requests=tuple(sorted(asks.items())), placing=placing), node=on, owner="Job")
    return SeenPod(pod=value, created=NOW - 600, kept="it is a training pod" if on else "")


def asks(random_: random.Random, gpus: int) -> dict[str, int]:
    requests = {"cpu": random_.choice((1000, 2000, 4000)), "memory": random_.choice((4, 8, 16)) << 30}
    return {**requests, GPU: gpus} if gpus else requests


def mixed(nodes: int) -> ClusterSnapshot:
    random_ = random.Random(nodes)
    seen, pods = [], []
    for number in range(nodes):
        gpus = 8 if number % 2 else 0
        seen.append(node(number, gpus))
        for index in range(PODS_EACH - 1):
            each = 1 if gpus and index < 8 else 0
            pods.append(pod(f"run-{number}-{index}", asks(random_, each), seen[-1].name))
        pods.append(pod(f"wait-{number}", asks(random_, random_.choice((0, 1, 1, 2, 8))), None))
    gangs = []
    for number in range(nodes // 100):
        members = tuple(
            Pod(name=f"gang-{number}/{index}", shape=PodShape(requests=(("cpu", 8000), (GPU, 8)), placing=TOLERANT))
            for index in range(4)
        )
        gangs.append(Gang(name=f"default/gang-{number}", pods=members, created=NOW - 300, is_suspended=True))
    return ClusterSnapshot(nodes=tuple(seen), pods=tuple(pods), gangs=tuple(gangs), pools=pools())


def cold(nodes: int) -> ClusterSnapshot:
    random_ = random.Random(nodes)
    pods = [
        pod(f"wait-{number}", asks(random_, random_.choice((0, 1, 1, 1, 2, 4, 8))), None)
        for number in range(nodes * PODS_EACH)
    ]
    return ClusterSnapshot(pods=tuple(pods), pools=pools())


LOADS: dict[str, Callable[[int], ClusterSnapshot]] = {"mixed": mixed, "cold": cold}


def measure() -> dict[str, float]:
    """As the other parts of bench/run.py give it."""
    figures = {}
    for name, words in (("mixed", "a tenth of the pods wait"), ("cold", "all pods wait, no nodes")):
        load = measure_load(name, SIZES, REPEATS)
        for row in load["rows"]:
            figures[f"nodes, 10 pods each: {int(row['nodes']):,}/{words}"] = float(row["cpu_s"])
        figures[f"growth over the number of nodes, {words} (1 is linear)"] = float(load["exponent"])
    return figures


def measure_load(name: str, sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    rows: list[dict[str, float]] = []
    for size in sizes:
        snapshot = LOADS[name](size)
        cpu_s, actions = measure_decide(snapshot, repeats)
        pods = len(snapshot.pods) + sum(len(gang.pods) for gang in snapshot.gangs)
        rows.append({"nodes": size, "pods": pods, "cpu_s": round(cpu_s, 4), "machines": actions})
    return {"rows": rows, "exponent": round(exponent(rows), 2) if len(rows) > 1 else None}


def measure_decide(snapshot: ClusterSnapshot, repeats: int) -> tuple[float, int]:
    best, actions = math.inf, 0
    for _ in range(repeats):
        started = time.process_time()
        plan = decide(snapshot, AutoscalerSettings(), NOW)
        best = min(best, time.process_time() - started)
        actions = sum(action.count or 1 for action in plan.actions)
    return best, actions


def exponent(rows: list[dict[str, float]]) -> float:
    """The slope of log(time) over log(nodes), by least squares."""
    points = [(math.log(row["nodes"]), math.log(row["cpu_s"])) for row in rows]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    return float(sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    print(json.dumps({name: measure_load(name, options.sizes, options.repeats) for name in LOADS}, indent=2))


if __name__ == "__main__":
    main()
