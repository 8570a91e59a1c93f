"""`longboat run --on` over five clusters: asking all of them, against asking the slowest alone.

python bench/places.py

One API server with 100 simulated nodes behind five proxies that answer after 0 to 200 ms each: five clusters at
different distances. The proxies are processes of their own, as the network is; the API server is shared, so that five
questions at once also compete for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import grounds

ROOT = Path(__file__).resolve().parents[1]
DELAYS_S = (0.0, 0.02, 0.05, 0.1, 0.2)
TIMES = 3

PROXY = """
import sys, time
from testbed import clusters
from testbed.proxy import ApiProxy
proxy = ApiProxy(clusters.get(sys.argv[1]))
proxy.delay(float(sys.argv[2]))
print(proxy.kubeconfig, flush=True)
sys.stdin.read()
proxy.close()
"""


def measure() -> dict[str, float]:
    with grounds.cluster("bench-places", "--nodes", "100:h100x8") as ground:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", PROXY, ground.name, str(delay_s)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for delay_s in DELAYS_S
        ]
        try:
            kubeconfigs = [process.stdout.readline().strip() for process in started if process.stdout]
            return of_places(ground, kubeconfigs)
        finally:
            for process in started:
                process.communicate()


def of_places(ground: grounds.Ground, kubeconfigs: list[str]) -> dict[str, float]:
    from longboat.engines.engine import Submission
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.multicluster.ask import NamedEngine, ask_outlooks
    from longboat.specs.read import read_job

    fields = {"name": "train", "run": ["python", "train.py"], "gpus": 8, "nodes": 4, "workdir": None}
    job = read_job([], fields=fields, environment={}).job
    submission = Submission(job=job, base=str(ground.folder), environment=dict(os.environ))

    def seconds(chosen: list[str]) -> float:
        """The best of several, each with new connections."""
        walls = []
        for _ in range(TIMES):
            places = [
                NamedEngine(name, KubernetesEngine(environment={**ground.environment, "KUBECONFIG": name}))
                for name in chosen
            ]
            began = time.perf_counter()
            answers = ask_outlooks(places, submission)
            walls.append(time.perf_counter() - began)
            assert {place.outlook.answer for place in answers} == {"now"}, answers
        return min(walls)

    alone = [seconds([name]) for name in kubeconfigs]
    together = seconds(kubeconfigs)
    return {
        "the slowest alone: s": max(alone),
        "all five: s": together,
        "all five / the slowest": together / max(alone),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
