"""From a gang that was submitted to the order of its machines: ten gangs of 4 x 8 GPUs, one after the other. JSON to
stdout.

python bench/orders.py [OTHER_LONGBOAT]   beside another version: the path of its `longboat`, measured first

The pool's machines are simulated (KWOK): an order is a node that appears, as this process is told by a watch of its
own. Submitted is when the last object of the run was made, which the same watches tell. Gangs come at random moments:
the autoscaler is now at rest, now at work for the one before.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from typing import Any

import grounds
import services

GANGS, NODES, SEED = 10, 4, 5
POOLS = {
    "pools": [
        {"name": "gpu", "max": GANGS * NODES, "boot": "20s", "machine": services.MACHINE, "provider": "simulated"}
    ],
    "providers": {"simulated": {"kind": "kwok", "ready_after": "5s"}},
}
PATIENCE_S = 60.0


class Sightings:
    """When objects were first seen, by what watches tell; nodes of the pool by their number."""

    def __init__(self, environment: dict[str, str]) -> None:
        from longboat.kubeapi.client import Client
        from longboat.kubeapi.kinds import CONFIG_MAP, JOB, NODE, POD, SERVICE
        from longboat.kubeapi.watch import Reflector

        self._changed = threading.Condition()
        self.objects: dict[tuple[str, str], float] = {}
        self.nodes: list[float] = []
        client = Client.open(environment=environment, namespace=grounds.NAMESPACE)
        self._reflectors = [
            Reflector(client, kind, everywhere=True, on_change=self._heard)
            for kind in (NODE, JOB, POD, CONFIG_MAP, SERVICE)
        ]
        for reflector in self._reflectors:
            reflector.sync(PATIENCE_S)

    def _heard(self, change: Any) -> None:
        body, now = change.object, time.monotonic()
        key = str(body.get("kind")), str(body["metadata"]["uid"])
        with self._changed:
            if key not in self.objects:
                self.objects[key] = now
                if (body["metadata"].get("labels") or {}).get("longboat.dev/pool") == "gpu":
                    self.nodes.append(now)
                self._changed.notify_all()

    def until_nodes(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.nodes) >= count, PATIENCE_S), f"{len(self.nodes)} nodes"

    def close(self) -> None:
        for reflector in self._reflectors:
            reflector.close()


def measure(other: str | None = None) -> dict[str, float]:
    figures: dict[str, float] = {}
    for label, program in ((" (before)", other), (" (now)" if other else "", grounds.longboat())):
        if program is not None:
            with grounds.cluster("bench-orders", "--nodes", "1:cpu") as ground:
                figures |= {f"{name}{label}": value for name, value in of_gangs(ground, program).items()}
    return figures


def of_gangs(ground: grounds.Ground, program: str) -> dict[str, float]:
    (ground.folder / "pools.yaml").write_text(json.dumps(POOLS))
    (ground.folder / "train.py").write_text("print('hello')\n")
    draw = random.Random(SEED)
    typed, made = [], []
    with services.services(ground, program):
        services.until_the_autoscaler_works(ground, program)
        sightings = Sightings(ground.environment)
        for number in range(GANGS):
            time.sleep(draw.uniform(0.0, 4.0))
            known, began = {*sightings.objects}, time.monotonic()
            services.hand_over(ground, program, number, nodes=NODES, run_s=3600)
            sightings.until_nodes(NODES * (number + 1))
            ordered = sightings.nodes[NODES * number]
            mine = [at for key, at in sightings.objects.items() if key not in known and at < ordered]
            typed.append(ordered - began)
            made.append(ordered - max(mine))
        sightings.close()
    return {
        "from a gang's last object to the order: s": statistics.median(made),
        "the slowest of ten: s": max(made),
        "from typing the command to the order: s": statistics.median(typed),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:2]), indent=2))
