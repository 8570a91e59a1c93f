"""GPUs of a machine that has no device plugin: counted, and shown on its node as nvidia.com/gpu.

A kubelet keeps what is written into its node's status, but forgets it when it starts anew; so a small process stays and
writes it again. It hands out numbers and no devices: a pod that asks for one GPU of four sees all four.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from testbed import api, binaries, clusters, controlplane, processes
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.processes import Launch, Process

RESOURCE = "nvidia.com/gpu"
EVERY_S = 1.0
DEVICES = Path("/dev")
DRIVER = Path("/proc/driver/nvidia/gpus")


def count(devices: Path = DEVICES, driver: Path = DRIVER) -> int:
    """How many this machine has: by its device files, by its driver's list, or as its own tool says."""
    entries = [file for file in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", file.name)]
    if not entries and driver.is_dir():
        entries = list(driver.iterdir())
    return len(entries) or count_told()


def count_told() -> int:
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0


def is_shown(with_api: api.Api, node: str, number: int) -> bool:
    """Whether the scheduler may hand out that many."""
    status = (with_api.get(api.path_of("Node", "v1", name=node)) or {}).get("status", {})
    return all(status.get(part, {}).get(RESOURCE) == str(number) for part in ("capacity", "allocatable"))


def show(with_api: api.Api, node: str, number: int) -> None:
    amount = {RESOURCE: str(number)}
    change = {"status": {"capacity": amount, "allocatable": amount}}
    with_api.merge(api.path_of("Node", "v1", name=node) + "/status", change)


def start(cluster: Cluster, programs: binaries.Binaries, node: str, number: int) -> Process:
    """Start the process that keeps them shown."""
    modules = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-m", "testbed.gpus", str(cluster.folder), node, str(number)]
    environment = {**controlplane.environment(cluster, programs), "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"}
    process = processes.start(Launch("gpus", command, environment, cluster.logs / "gpus.log"))
    processes.record(cluster.processes, process)
    return process


def keep(folder: Path, node: str, number: int) -> None:
    """Look again and again, until the cluster is gone."""
    while (cluster := clusters.load_folder(folder)) is not None:
        with_api = api.Api(cluster, timeout_s=5.0)
        try:
            if not is_shown(with_api, node, number):
                show(with_api, node, number)
                print(f"{node} shows {number} GPUs", flush=True)
        except TestbedError as error:
            print(error, flush=True)
        finally:
            with_api.close()
        time.sleep(EVERY_S)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
