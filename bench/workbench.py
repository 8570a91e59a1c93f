"""The first byte of a notebook that is open in a pod: `longboat notebook` against `kubectl port-forward` by hand.

Seconds on the clock, and processor time of both programs, which says more on a busy machine.

python bench/workbench.py
"""

from __future__ import annotations

import http.client
import os
import re
import statistics
import subprocess
import time
from pathlib import Path

import grounds

TIMES = 7
PYTHON = "python3.11"  # of the image


def measure() -> dict[str, float]:
    with grounds.cluster("bench-workbench", "--profile", "pods") as ground:
        ground.set(image=grounds.PYTHON_IMAGE, allow_host_paths=True)
        project = ground.folder / "project"
        project.mkdir()
        flags = programs()
        command = [grounds.longboat(), "notebook", "--no-browser", *flags]
        opened = subprocess.run([*command, "-d"], cwd=project, env=ground.environment, capture_output=True, text=True)
        assert opened.returncode == 0, opened.stderr
        pod, port = place_of(ground)
        by_hand = [grounds.kubectl(), "port-forward", f"pod/{pod}", f":{port}", "--address=127.0.0.1"]
        ours, theirs = [], []
        for _ in range(TIMES + 1):  # by turns: a machine that gets busier is so for both
            ours.append(first_byte(command, project, ground.environment))
            theirs.append(first_byte(by_hand, project, ground.environment))
        figures = {
            "first byte: longboat notebook": statistics.median(wall for wall, _ in ours[1:]),
            "first byte: kubectl port-forward": statistics.median(wall for wall, _ in theirs[1:]),
            "processor time: longboat notebook": statistics.median(cpu for _, cpu in ours[1:]),
            "processor time: kubectl port-forward": statistics.median(cpu for _, cpu in theirs[1:]),
        }
        later = figures["first byte: longboat notebook"] - figures["first byte: kubectl port-forward"]
        return {**figures, "first byte: longboat later than kubectl": later}


def programs() -> list[str]:
    """Flags by which the pod has JupyterLab: that of the tests' environment."""
    from tests.frameworks.environments import make

    folder = make("workbench")
    packages = folder / "lib" / PYTHON / "site-packages"
    return [f"--volume={folder}={folder}:ro", f"--env=PYTHONPATH={packages}", "--env=HOME=/tmp"]


def place_of(ground: grounds.Ground) -> tuple[str, int]:
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.kubeapi.kinds import POD
    from longboat.workbench.sessions import read_session

    engine = KubernetesEngine(environment=ground.environment)
    session = read_session(engine, engine.status("notebook"))
    assert session is not None
    (pod,) = engine.client.list(POD, labels="longboat.dev/run=notebook").items
    return str(pod["metadata"]["name"]), session.port


def first_byte(command: list[str], cwd: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from typing the command until the server answers through what it opened; processor time of it."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert address, line
        connection = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=60)
        connection.request("GET", "/api")
        assert connection.getresponse().read(1)
        taken = time.perf_counter() - began
        process.kill()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    return taken, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name}: {value:.3f}")
