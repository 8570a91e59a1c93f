"""Jobs that run a command of the machine itself in a pod: its folders are mounted over an image with one file in it.

For a machine that has Python, PyTorch and the GPU's driver installed and no way to get an image. The manifest is pure;
`run` sends it, shows the log as it comes and returns the command's exit code. Not a way to keep anything apart: the pod
is privileged and uses the machine's network.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed import api, gpus, images
from testbed.binaries import Binaries
from testbed.clusters import Cluster
from testbed.errors import TestbedError

FOLDERS = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr")
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG")
IMAGE = "host"
START_S = 60.0
NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")


@dataclass(frozen=True)
class Order:
    """What is to run, and what of the machine it is to see besides the usual folders."""

    command: tuple[str, ...]
    gpus: int = 1
    name: str = ""
    writable: tuple[str, ...] = ()
    """Further folders, at the same path and to be written to."""
    folder: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def inherited_environment() -> dict[str, str]:
    """So that `python3` is the same in the pod as outside."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def check(order: Order) -> None:
    if not order.command:
        raise TestbedError("nothing to run: start run -- COMMAND")
    if not NAME.fullmatch(order.name):
        raise TestbedError(f"{order.name!r} is no name: small letters, digits and '-', at most 52")
    for path in order.writable:
        if not os.path.isabs(path) or not os.path.isdir(path):
            raise TestbedError(f"{path} is no folder of this machine, given from /")


def volumes(order: Order, folders: Sequence[str]) -> tuple[list[api.Object], list[api.Object]]:
    """Volumes and where they are mounted: the machine's folders, further ones, and an empty /tmp."""
    listed: list[api.Object] = []
    mounted: list[api.Object] = []
    for number, path in enumerate([*folders, *order.writable]):
        listed.append({"name": f"host-{number}", "hostPath": {"path": path}})
        mounted.append({"name": f"host-{number}", "mountPath": path, "readOnly": path not in order.writable})
    if "/tmp" not in order.writable:
        listed.append({"name": "tmp", "emptyDir": {}})
        mounted.append({"name": "tmp", "mountPath": "/tmp"})
    return listed, mounted


def manifest(order: Order, folders: Sequence[str], *, shares_memory: bool = True) -> api.Object:
    """The Job, ready for the API. `folders` are those of the usual ones that the machine has."""
    listed, mounted = volumes(order, folders)
    environment = {"HOME": "/tmp", **order.environment}
    limits = {"limits": {gpus.RESOURCE: str(order.gpus)}} if order.gpus else {}
    container = {
        "name": "main",
        "image": images.reference(IMAGE),
        "imagePullPolicy": "Never",
        "command": list(order.command),
        "workingDir": order.folder or "/tmp",
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": limits,
        "securityContext": {"privileged": True},
        "volumeMounts": mounted,
    }
    pod = {
        "restartPolicy": "Never",
        "hostNetwork": True,
        # The machine's /dev/shm, at its size: workers of a data loader hand batches over in it.
        "hostIPC": shares_memory,
        "dnsPolicy": "Default",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": listed,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": order.name, "namespace": "default"},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }


def manifest_here(order: Order) -> api.Object:
    """The Job for the machine this runs on."""
    check(order)
    present = [path for path in FOLDERS if os.path.isdir(path)]
    return manifest(order, present, shares_memory=os.path.isdir("/dev/shm"))


def new_name() -> str:
    return f"run-{secrets.token_hex(4)}"


def run(cluster: Cluster, programs: Binaries, order: Order) -> int:
    """Run it, show its output, remove it; the command's exit code."""
    job = manifest_here(order)
    with_api = api.Api(cluster)
    try:
        check_fits(with_api, order.gpus)
        with_api.create(job)
        try:
            pod = wait_started(with_api, order.name)
            follow(cluster, programs, pod)
            return wait_ended(with_api, pod)
        finally:
            with_api.delete(api.path_of_object(job))
    finally:
        with_api.close()


def check_fits(with_api: api.Api, wanted: int) -> None:
    """Refuse at once what no node can ever give; what is only in use now is waited for."""
    nodes = with_api.items(api.path_of("Node", "v1"))
    most = max((int(each["status"].get("allocatable", {}).get(gpus.RESOURCE, 0)) for each in nodes), default=0)
    if wanted > most:
        raise TestbedError(f"{wanted} GPUs were asked for and the machine shows {most}: run --gpus {most}")


def pods_of(with_api: api.Api, job: str) -> list[api.Object]:
    return with_api.items(f"{api.path_of('Pod', 'v1', 'default')}?labelSelector=batch.kubernetes.io/job-name%3D{job}")


def wait_started(with_api: api.Api, job: str) -> str:
    """The pod's name, once it has run; refuses with the reason when it does not come to that."""
    deadline = time.monotonic() + START_S
    while True:
        pods = pods_of(with_api, job)
        for pod in pods:
            if pod["status"].get("phase") not in (None, "Pending"):
                return str(pod["metadata"]["name"])
        reason = next(filter(None, map(obstacle, pods)), "its pod does not start")
        if time.monotonic() > deadline:
            raise TestbedError(f"the Job {job} does not run: {reason}")
        time.sleep(0.05)


def obstacle(pod: api.Object) -> str:
    """What a pod that does not run says about itself."""
    status = pod["status"]
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    messages = [
        condition.get("message", "")
        for condition in status.get("conditions", [])
        if condition["type"] == "PodScheduled"
    ]
    return messages[0] if messages else ""


def follow(cluster: Cluster, programs: Binaries, pod: str) -> None:
    """Show the log until the container ends."""
    command = [str(programs["kubectl"]), f"--kubeconfig={cluster.kubeconfig}", "logs", "--follow", pod]
    done = subprocess.run(command, env={"PATH": programs.search_path(), "HOME": str(cluster.folder)}, check=False)
    if done.returncode != 0:
        raise TestbedError(f"the log of {pod} could not be read: kubectl ended with {done.returncode}")


def wait_ended(with_api: api.Api, pod: str) -> int:
    path = api.path_of("Pod", "v1", "default", pod)
    codes: list[int] = []

    def has_ended() -> bool:
        statuses = (with_api.get(path) or {}).get("status", {}).get("containerStatuses", [])
        codes[:] = [
            container["state"]["terminated"]["exitCode"] for container in statuses if "terminated" in container["state"]
        ]
        return bool(codes)

    api.wait_for(f"the pod {pod} has ended", has_ended, START_S)
    return codes[0]
