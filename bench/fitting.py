"""CPU seconds of fitting on fleets of 100, 1,000 and 5,000 nodes with 10 pods each, and how they grow. JSON to stdout.

    python bench/fitting.py

Of the 10 pods 8 run and 2 wait, in gangs of 1 to 8, in kinds with and without GPUs, selectors and tolerations. Timed:
`read`, values from objects as the API prints them; `fleet`, the running pods put on their nodes; `place`, gang after
gang placed until the fleet is full; and apart from the total `gate`, one decision about all gangs as runs that wait.
`growth` is the exponent of the total over the number of nodes: 1 is linear.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from longboat.engines.kubernetes.gate.decide import ClusterUsage, GateCandidate, decide_gate
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import node_of
from longboat.fitting.model.pods import Pod, pods_of
from longboat.fitting.packing import Placement, take

SIZES = (100, 1_000, 5_000)
RUNNING_PER_NODE = 8
WAITING_PER_NODE = 2
GPU = "nvidia.com/gpu"
DEFAULT_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
]


def node_body(number: int) -> dict[str, Any]:
    has_gpus = number % 2 == 0
    name = f"node-{number:05d}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": "abc"[number % 3],
        "kubernetes.io/os": "linux",
        "pool": "gpu" if has_gpus else "cpu",
    }
    room = {"cpu": "95500m", "memory": "1013Gi", "ephemeral-storage": "900Gi", "pods": "110"}
    taints = [{"key": GPU, "effect": "NoSchedule"}] if has_gpus else []
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {**room, GPU: "8"} if has_gpus else room},
    }


def pod_body(name: str, labels: dict[str, str], gpus: int, chance: random.Random) -> dict[str, Any]:
    requests = {"cpu": chance.choice(["500m", "1", "2", "4"]), "memory": chance.choice(["1Gi", "4Gi", "16Gi"])}
    tolerations = list(DEFAULT_TOLERATIONS)
    spec: dict[str, Any] = {"containers": [], "tolerations": tolerations}
    if gpus:
        requests[GPU] = str(gpus)
        tolerations.append({"key": GPU, "operator": "Exists"})
    elif chance.random() < 0.5:
        spec["nodeSelector"] = {"pool": "cpu"}
    spec["containers"] = [{"name": "main", "resources": {"requests": requests, "limits": requests}}]
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec, "status": {}}


def running_pods(nodes: int, chance: random.Random) -> list[dict[str, Any]]:
    bodies = []
    for node in range(nodes):
        for number in range(RUNNING_PER_NODE):
            gpus = 1 if node % 2 == 0 and number < 6 else 0
            body = pod_body(f"run-{node}-{number}", {"app": f"app-{number}"}, gpus, chance)
            body["spec"]["nodeName"] = f"node-{node:05d}"
            body["status"] = {"phase": "Running"}
            bodies.append(body)
    return bodies


def waiting_gangs(nodes: int, chance: random.Random) -> list[list[dict[str, Any]]]:
    gangs: list[list[dict[str, Any]]] = []
    left = nodes * WAITING_PER_NODE
    while left > 0:
        size = min(left, chance.randint(1, 8))
        gpus = chance.choice([0, 0, 0, 1, 2, 4])
        seed = chance.random()
        name = f"gang-{len(gangs)}"
        pods = [pod_body(f"{name}-{i}", {"gang": name}, gpus, random.Random(seed)) for i in range(size)]
        gangs.append(pods)
        left -= size
    return gangs


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def place_all(gangs: Sequence[Sequence[Pod]], fleet: Fleet) -> int:
    return sum(isinstance(take(gang, fleet, explain=False), Placement) for gang in gangs)


def measure_fleet(nodes: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    node_bodies = [node_body(number) for number in range(nodes)]
    running = running_pods(nodes, chance)
    waiting = waiting_gangs(nodes, chance)
    gc.freeze()
    read_s, (shapes, bound, gangs) = timed(
        lambda: ([node_of(body) for body in node_bodies], pods_of(running), [pods_of(gang) for gang in waiting])
    )
    fleet_s, fleet = timed(lambda: Fleet(shapes, bound))
    place_s, placed = timed(lambda: place_all(gangs, fleet))
    runs = [
        GateCandidate(run=f"gang-{number}", uid=str(number), created=float(number), pods=tuple(gang))
        for number, gang in enumerate(gangs)
    ]
    room = ClusterUsage(nodes=tuple(shapes), pods=tuple(bound))
    gate_s, _ = timed(lambda: decide_gate(runs, room, 0.0))
    gc.unfreeze()
    return {
        "nodes": nodes,
        "pods": len(bound),
        "waiting_pods": sum(len(gang) for gang in gangs),
        "gangs": len(gangs),
        "gangs_placed": placed,
        "read_s": round(read_s, 4),
        "fleet_s": round(fleet_s, 4),
        "place_s": round(place_s, 4),
        "total_s": round(read_s + fleet_s + place_s, 4),
        "gate_s": round(gate_s, 4),
    }


def growth_of(rows: Sequence[dict[str, Any]]) -> float:
    first, last = rows[0], rows[-1]
    return round(math.log(last["total_s"] / first["total_s"]) / math.log(last["nodes"] / first["nodes"]), 3)


def measure() -> dict[str, float]:
    """As the other parts of bench/run.py give it."""
    rows = [measure_fleet(nodes, 1) for nodes in SIZES]
    words = {"read_s": "reading", "fleet_s": "the fleet", "place_s": "placing", "total_s": "all", "gate_s": "the gate"}
    figures = {
        f"nodes, 10 pods each: {row['nodes']:,}/{word}": float(row[key]) for row in rows for key, word in words.items()
    }
    return {**figures, "growth over the number of nodes (1 is linear)": growth_of(rows)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = [measure_fleet(nodes, options.seed) for nodes in options.nodes]
    growth = growth_of(rows) if len(rows) > 1 else None
    json.dump({"python": sys.version.split()[0], "rows": rows, "growth": growth}, sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
