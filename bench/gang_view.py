"""One gang of 10, 100 and 1,000 nodes with 8 ranks each, on simulated nodes (KWOK): requests, sizes, times.

python bench/gang_view.py [FOLDER]   writes there what each command of the largest gang spends its time on (cProfile)
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grounds
from gang_line import exponent

SIZES = (10, 100, 1000)
RANKS = 8
SHOWN = ("status", "explain", "logs", "ps")
"""Simulated nodes have no logs: how soon and in how many lines `logs` says so is measured."""
TIMES = 3
LIMIT_S = 600.0
PROFILES = Path(sys.argv[1]) if len(sys.argv) > 1 and __name__ == "__main__" else None
"""Where the profiles go; those of the largest gang are written last and stay."""


def measure() -> dict[str, float]:
    figures: dict[str, float] = {}
    requests: dict[int, float] = {}
    with grounds.cluster("bench-gang", "--nodes", f"{SIZES[-1]}:cpu") as ground:
        # With a storage nobody asks simulated nodes for the lines of their pods.
        ground.set(image=grounds.PYTHON_IMAGE, storage={"path": "/srv/runs"}, allow_host_paths=True)
        (ground.folder / "code").mkdir()
        (ground.folder / "code" / "train.py").write_text("print('hello')\n")
        for nodes in SIZES:
            of_size = of_gang(ground, nodes)
            requests[nodes] = of_size["requests of a status"]
            figures |= {f"{name}, {nodes:,} nodes": value for name, value in of_size.items()}
    figures["requests: exponent"] = exponent(requests[SIZES[0]], requests[SIZES[-1]], SIZES[-1] / SIZES[0])
    return figures


def of_gang(ground: grounds.Ground, nodes: int) -> dict[str, float]:
    from longboat.engines.engine import Submission
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.specs.read import read_job

    engine = KubernetesEngine(namespace=grounds.NAMESPACE, environment=ground.environment)
    try:
        fields: dict[str, Any] = {
            "name": f"gang-of-{nodes}-nodes",
            "run": ["python", "train.py"],
            "nodes": nodes,
            "procs": RANKS,
        }
        loaded = read_job([], fields=fields, environment=ground.environment, cwd=ground.folder / "code")
        began = time.monotonic()
        run = engine.submit(Submission(job=loaded.job, base=loaded.base, environment=ground.environment)).name
        while next(each.phase for each in engine.list() if each.name == run) != "running":
            if time.monotonic() - began > LIMIT_S:
                raise SystemExit(f"{nodes} nodes do not run: {engine.status(run).reason}")
            time.sleep(2.0)
        figures = {"until it runs, s": time.monotonic() - began}
        before = engine.client.requests
        engine.status(run)
        figures |= {"requests of a status": float(engine.client.requests - before)}
        figures |= largest(engine.client, run)
        for command in SHOWN:
            took, text = shown(ground, command, run)
            figures[f"`{command}`, s"] = took
            figures[f"`{command}`, lines"] = float(text.count("\n"))
        return figures  # the cluster goes with all of it
    finally:
        with contextlib.suppress(Exception):
            engine.close()


def largest(client: Any, run: str) -> dict[str, float]:
    """KiB of the largest object of each kind that grows with the gang."""
    from longboat.kubeapi.kinds import CONFIG_MAP, JOB, SECRET

    sizes = {}
    for kind in (CONFIG_MAP, SECRET, JOB):
        bodies = [body for body in client.list(kind).items if body["metadata"]["name"].startswith(run)]
        sizes[f"largest {kind.kind}, KiB"] = max(len(json.dumps(body)) for body in bodies) / 1024
    return sizes


def shown(ground: grounds.Ground, command: str, run: str) -> tuple[float, str]:
    words = [sys.executable, "-m", "longboat", command, *([] if command == "ps" else [run])]
    times, text = [], io.StringIO()
    for _ in range(TIMES):
        began = time.monotonic()
        done = subprocess.run(words, env=ground.environment, capture_output=True, text=True, check=command != "logs")
        times.append(time.monotonic() - began)
        text = io.StringIO(done.stdout + done.stderr)
    if PROFILES is not None:
        profiled = [words[0], "-m", "cProfile", "-o", str(PROFILES / f"{command}.prof"), *words[1:]]
        subprocess.run(
            profiled, env=ground.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    return statistics.median(times), text.getvalue()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    print(json.dumps(measure(), indent=1))
