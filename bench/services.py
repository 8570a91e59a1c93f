"""CPU and requests of the autoscaler and the controller while one trace of runs passes, on simulated nodes (KWOK).

python bench/services.py [OTHER_LONGBOAT]   beside another version: the path of its `longboat`, measured first
python bench/services.py --list             also which requests they are, by verb and kind of object

The same trace for each: a run every few seconds that asks for 1 to 4 machines of a pool that begins empty. Each service
has a proxy of its own before the API server, which counts.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grounds

RUNS, EVERY_S, SEED = 20, 3.0, 7
MACHINE = {"cpus": 32, "memory": "256Gi", "gpus": 8}
POOLS = {
    "pools": [{"name": "gpu", "max": 12, "boot": "20s", "machine": MACHINE, "provider": "simulated"}],
    "settings": {"idle": "30s"},
    "providers": {"simulated": {"kind": "kwok", "ready_after": "5s"}},
}
SYSTEM = "longboat-system"
PREFIX = "testbed.longboat.test/"
TICKS = os.sysconf("SC_CLK_TCK")


class Service(NamedTuple):
    """A service that runs, with the proxy that counts its requests."""

    name: str
    process: subprocess.Popen[bytes]
    proxy: object

    def figures(self) -> tuple[float, float]:
        """CPU seconds, requests."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS, float(len(self.proxy.seen))  # type: ignore[attr-defined]

    def kinds(self, after: float) -> Counter[str]:
        """Its requests after so many: how often each verb and kind of object."""
        later = self.proxy.seen[int(after) :]  # type: ignore[attr-defined]
        return Counter(f"{seen.request.method:6} {path_shown(seen.request)}" for seen in later)


def path_shown(request: Any) -> str:
    """A path without what is different in every run: `configmaps/longboat-autoscaler`, but `nodes/NAME`."""
    words = re.sub(r"^/api(s/[^/]+)?/v[^/]+/(namespaces/[^/]+/(?=.))?", "", request.path)
    shown = re.sub(r"^(nodes|pods|events|jobs|persistentvolumeclaims|leases)/[^/]+", r"\1/NAME", words)
    shown = re.sub(r"/(job-\d+)[^/]*", "/RUN", shown)
    return f"{shown} (watch)" if request.is_watch else shown


def measure(other: str | None = None, *, is_listed: bool = False) -> dict[str, float]:
    figures: dict[str, float] = {}
    for label, program in (("before", other), ("now", grounds.longboat())):
        if program is None:
            continue
        with grounds.cluster("bench-services", "--nodes", "1:cpu") as ground:
            for name, (cpu_s, requests) in of_trace(ground, program, is_listed).items():
                suffix = f" ({label})" if other else ""
                figures[f"{name}: CPU s{suffix}"] = cpu_s
                figures[f"{name}: requests{suffix}"] = requests
    return figures


def of_trace(ground: grounds.Ground, program: str, is_listed: bool = False) -> dict[str, tuple[float, float]]:
    (ground.folder / "pools.yaml").write_text(json.dumps(POOLS))
    (ground.folder / "train.py").write_text("print('hello')\n")
    draw = random.Random(SEED)
    with services(ground, program) as running:
        until_the_autoscaler_works(ground, program)
        before = {service.name: service.figures() for service in running}
        began = time.monotonic()
        for number in range(RUNS):
            time.sleep(max(0.0, began + number * EVERY_S - time.monotonic()))
            hand_over(ground, program, number, nodes=draw.choice((1, 1, 1, 2, 4)), run_s=draw.randint(5, 30))
        waited = subprocess.run([program, "wait", *(f"job-{number}" for number in range(RUNS))], env=ground.environment)
        assert waited.returncode == 0, waited
        after = {service.name: service.figures() for service in running}
        for service in running if is_listed else ():
            print(f"{service.name}:")
            for request, count in service.kinds(before[service.name][1]).most_common():
                print(f"{count:6} {request}")
    return {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after}


def hand_over(ground: grounds.Ground, program: str, number: int, *, nodes: int, run_s: int) -> None:
    """A run whose simulated pods run for so long. With a storage nobody asks simulated machines for logs."""
    annotations = {PREFIX + "run-for": f"{run_s}s", PREFIX + "exit-code": "0"}
    pod = {"metadata": {"annotations": annotations}, "spec": {"nodeSelector": {"longboat.dev/pool": "gpu"}}}
    ground.set(image=grounds.PYTHON_IMAGE, pod=pod, storage={"path": "/srv/runs"}, allow_host_paths=True)
    words = ["run", "--detach", "--name", f"job-{number}", "--nodes", str(nodes), "--gpus", "8", "train.py"]
    subprocess.run([program, *words], env=ground.environment, cwd=ground.folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def services(ground: grounds.Ground, program: str) -> Iterator[list[Service]]:
    from testbed import clusters
    from testbed.proxy import ApiProxy

    words = {
        "autoscaler": ["autoscaler", "run", "--pools", "pools.yaml", "--home", grounds.NAMESPACE],
        "controller": ["controller", "--lease", SYSTEM],
    }
    subprocess.run([grounds.kubectl(), "create", "namespace", SYSTEM], env=ground.environment, check=True)
    running: list[Service] = []
    try:
        for name, arguments in words.items():
            proxy = ApiProxy(clusters.get(ground.name))
            environment = {**ground.environment, "KUBECONFIG": str(proxy.kubeconfig)}
            with open(ground.folder / f"{name}.log", "wb") as log:
                process = subprocess.Popen(
                    [program, *arguments], env=environment, cwd=ground.folder, stdout=log, stderr=log
                )
            running.append(Service(name, process, proxy))
        yield running
    finally:
        for service in running:
            service.process.send_signal(signal.SIGTERM)
            service.process.wait()
            service.proxy.close()  # type: ignore[attr-defined]


def until_the_autoscaler_works(ground: grounds.Ground, program: str) -> None:
    words = [program, "autoscaler", "status", "--home", grounds.NAMESPACE, "-o", "json"]
    for _ in range(120):
        status = subprocess.run(words, env=ground.environment, capture_output=True, text=True)
        if status.returncode == 0 and json.loads(status.stdout).get("leader"):
            return
        time.sleep(0.5)
    raise SystemExit((ground.folder / "autoscaler.log").read_text()[-2000:])


if __name__ == "__main__":
    others = [word for word in sys.argv[1:] if word != "--list"]
    for name, value in measure(*others[:1], is_listed="--list" in sys.argv).items():
        print(f"{name:40} {value:10.2f}")
