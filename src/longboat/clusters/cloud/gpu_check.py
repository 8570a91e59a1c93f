"""A Job with nvidia-smi on each GPU pool of a cluster that was just made: do pods get its GPUs? Its log says which.

A pool without a machine is not tried: a machine would be bought for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from longboat.clusters.cloud.labels import POOL_LABEL
from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import JOB, NODE, POD

GPU = "nvidia.com/gpu"
READY_S = 600.0  # the driver's image is large, and the device plugin starts after the node is ready
LOOK_S = 1.0  # one request; nodes and pods take seconds
CONTAINER = "nvidia-smi"
MOST_LOG = 65536  # nvidia-smi prints a table of some KiB
IMAGE = "ubuntu:24.04"
"""Small, and without any library of NVIDIA: what it shows comes from the node."""


class GpuVerdict(Value, frozen=True):
    pool: str
    is_fine: bool
    text: str  # the first GPU, or what went wrong
    is_tried: bool = True


def job_object(pool: str, image: str) -> dict[str, Any]:
    """Pure."""
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["nvidia-smi", "-L"],
        "resources": {"limits": {GPU: "1"}},
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {POOL_LABEL: pool},
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    meta = {"name": name_of(pool), "labels": {"app.kubernetes.io/managed-by": "longboat"}}
    spec = {"backoffLimit": 2, "ttlSecondsAfterFinished": 600, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def name_of(pool: str) -> str:
    return f"longboat-nvidia-smi-{pool}"


def check_pools(
    client: Client, pools: Sequence[str], say: Callable[[str], None], *, image: str = IMAGE, timeout_s: float = READY_S
) -> list[GpuVerdict]:
    """One Job for each pool, all at once; removed in the end."""
    there = {node["metadata"].get("labels", {}).get(POOL_LABEL) for node in client.list(NODE).items}
    deadline = time.monotonic() + timeout_s
    tried = [pool for pool in pools if pool in there]
    for pool in pools:
        if pool not in there:
            say(f"longboat: pool {pool} has no machine now: its GPUs are not tried")
    try:
        for pool in tried:
            client.delete(JOB, name_of(pool))  # of an earlier command
        for pool in tried:
            _create(client, pool, image, deadline)
        verdicts = [_verdict(client, pool, deadline) for pool in tried]
    finally:
        for pool in tried:
            try:
                client.delete(JOB, name_of(pool))
            except ApiError:  # it goes by itself ten minutes later
                pass
    untried = [GpuVerdict(pool=pool, is_fine=True, text="", is_tried=False) for pool in pools if pool not in there]
    return [*verdicts, *untried]


def _create(client: Client, pool: str, image: str, deadline: float) -> None:
    while client.find(JOB, name_of(pool)) is not None and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    client.create(job_object(pool, image))


def _verdict(client: Client, pool: str, deadline: float) -> GpuVerdict:
    while True:
        status = client.get(JOB, name_of(pool)).get("status") or {}
        pods = client.list(POD, labels=f"job-name={name_of(pool)}").items
        if status.get("succeeded"):
            done = next(pod for pod in pods if pod["status"].get("phase") == "Succeeded")
            return GpuVerdict(pool=pool, is_fine=True, text=_first_line(client, done))
        states = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
        if states.get("Failed") == "True" or time.monotonic() > deadline:
            return GpuVerdict(pool=pool, is_fine=False, text=_trouble(pods) or "no pod was made")
        time.sleep(LOOK_S)


def _first_line(client: Client, pod: dict[str, Any]) -> str:
    chunks = client.log(pod["metadata"]["name"], container=CONTAINER, limit_bytes=MOST_LOG)
    lines = b"".join(chunks).decode(errors="replace").splitlines()
    return lines[0].strip()[:200] if lines else "nvidia-smi printed nothing"


def _trouble(pods: Sequence[dict[str, Any]]) -> str:
    """What keeps the newest pod from its end, in Kubernetes' words. Pure."""
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True):
        status = pod.get("status") or {}
        for container in status.get("containerStatuses") or ():
            state = container.get("state") or {}
            waiting, ended = state.get("waiting"), state.get("terminated")
            if ended and ended.get("exitCode"):
                return f"nvidia-smi ended with {ended['exitCode']}: {ended.get('message') or ended.get('reason') or ''}"
            if waiting:
                return f"{waiting.get('reason')}: {waiting.get('message') or ''}".strip(": ")
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return str(condition.get("message") or condition.get("reason"))
    return ""


def raise_if_bad(verdicts: Sequence[GpuVerdict]) -> None:
    bad = [verdict for verdict in verdicts if not verdict.is_fine]
    if bad:
        raise EngineError(
            f"pods get no GPU in {len(bad)} of {len(verdicts)} pools: {bad[0].pool}: {bad[0].text}",
            hint="longboat doctor looks at the nodes; the cluster stays as it is",
        )
