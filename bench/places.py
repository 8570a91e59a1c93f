"""`longboat run --on` over five clusters: asking all of them, against asking the slowest alone. In one process, and as
the whole command.

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
    slowest, five = of_commands(ground, kubeconfigs)
    return {
        "the slowest alone: s": max(alone),
        "all five: s": together,
        "all five / the slowest": together / max(alone),
        "the whole command, the slowest alone: s": slowest,
        "the whole command, all five: s": five,
        "the whole command, all five / the slowest": five / slowest,
    }


def of_commands(ground: grounds.Ground, kubeconfigs: list[str]) -> tuple[float, float]:
    """`longboat run --on A,B,C,D,E --dry-run -o json`, and the same with the slowest and this machine; in turns."""
    names = [f"c{number}" for number in range(len(kubeconfigs))]
    path = ground.folder / "all"
    path.write_text(json.dumps(merged(dict(zip(names, kubeconfigs)))))
    environment = {**ground.environment, "KUBECONFIG": str(path)}
    job = ["--gpus", "8", "--nodes", "4", "--workdir", "none", "--", "true"]

    def seconds(on: str) -> float:
        words = [grounds.longboat(), "run", "--on", on, "--dry-run", "-o", "json", *job]
        began = time.perf_counter()
        done = subprocess.run(words, env=environment, cwd=ground.folder, capture_output=True, text=True)
        wall = time.perf_counter() - began
        assert done.returncode == 0, done.stderr
        answers = {place["name"]: place["outlook"]["answer"] for place in json.loads(done.stdout)["places"]}
        assert {answers[name] for name in on.split(",") if name != "local"} == {"now"}, answers
        return wall

    pairs = [(seconds(f"{names[-1]},local"), seconds(",".join(names))) for _ in range(TIMES)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def merged(kubeconfigs: dict[str, str]) -> dict[str, object]:
    """One kubeconfig of several, each with one context."""
    import yaml

    bodies = {name: yaml.safe_load(Path(path).read_text()) for name, path in kubeconfigs.items()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{**body["clusters"][0], "name": name} for name, body in bodies.items()],
        "users": [{**body["users"][0], "name": name} for name, body in bodies.items()],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in bodies],
        "current-context": next(iter(bodies)),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
