"""Simulated nodes: a fleet of any size and shape whose pods run nowhere, bound by the real scheduler.

What they do over time is in `stages`. Not here: real nodes.
"""

from __future__ import annotations

import concurrent.futures
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed import api, controlplane, processes, stages
from testbed.api import Object
from testbed.binaries import KUBERNETES_VERSION, Binaries
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.processes import Launch, Process

TARGETS = ("kwok",)
MANAGED = {"kwok.x-k8s.io/node": "fake"}
READY_S = 120.0
CONNECTIONS = 4


@dataclass(frozen=True)
class Shape:
    """One kind of node."""

    name: str
    gpus: int = 0
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    product: str = ""
    gpu_memory_mib: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """What node feature discovery and clouds put on such a node."""
        labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        labels["node.kubernetes.io/instance-type"] = self.name
        if self.gpus:
            labels["nvidia.com/gpu.present"] = "true"
            labels["nvidia.com/gpu.count"] = str(self.gpus)
            labels["nvidia.com/gpu.product"] = self.product
            labels["nvidia.com/gpu.memory"] = str(self.gpu_memory_mib)
        return labels


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("cpu", cpu="32", memory="128Gi"),
        Shape("h100x8", 8, "192", "2Ti", product="NVIDIA-H100-80GB-HBM3", gpu_memory_mib=81559),
        Shape("h200x8", 8, "192", "2Ti", product="NVIDIA-H200", gpu_memory_mib=143771),
        Shape("a100x8", 8, "96", "1Ti", product="NVIDIA-A100-SXM4-80GB", gpu_memory_mib=81920),
        Shape("l4x1", 1, "16", "64Gi", product="NVIDIA-L4", gpu_memory_mib=23034),
        Shape("t4x4", 4, "48", "192Gi", product="Tesla-T4", gpu_memory_mib=15360),
    )
}
DEFAULT_SHAPE = "h100x8"


@dataclass(frozen=True)
class Group:
    """So many nodes of one shape. The annotations choose what they do over time (see `stages`)."""

    count: int
    shape: Shape
    prefix: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    """As kubectl writes them: `key=value:Effect`."""


def parse_group(text: str) -> Group:
    """`100`, `100:h100x8`, or `4:gpus=2,cpu=16,memory=64Gi` for a shape of one's own."""
    count, _, wanted = text.partition(":")
    if not count.isdigit() or int(count) < 1:
        raise TestbedError(f"{text!r} is no group of nodes: write COUNT or COUNT:SHAPE, such as 100:{DEFAULT_SHAPE}")
    if "=" not in wanted:
        name = wanted or DEFAULT_SHAPE
        if name not in SHAPES:
            raise TestbedError(f"no shape {name!r}; there are {', '.join(SHAPES)}, or gpus=N,cpu=N,memory=SIZE")
        return Group(int(count), SHAPES[name])
    parts = dict(part.partition("=")[::2] for part in wanted.split(","))
    unknown = sorted(set(parts) - {"gpus", "cpu", "memory", "pods"})
    if unknown or not all(re.fullmatch(r"[0-9]+[A-Za-z]*", value) for value in parts.values()):
        raise TestbedError(f"{wanted!r} is no shape: write gpus=N,cpu=N,memory=SIZE,pods=N")
    gpus = int(parts.get("gpus", "0"))
    product = "NVIDIA-Simulated" if gpus else ""
    name = "-".join(["own", *(f"{key}{value.lower()}" for key, value in sorted(parts.items()))])
    cpu, memory, pods = parts.get("cpu", "32"), parts.get("memory", "128Gi"), int(parts.get("pods", "110"))
    shape = Shape(name, gpus, cpu, memory, pods, product)
    return Group(int(count), shape)


def parse_taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    if not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise TestbedError(f"{text!r} is no taint: write key=value:NoSchedule")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def node_object(name: str, group: Group) -> Object:
    shape = group.shape
    annotations = {**MANAGED, **group.annotations}
    # A node that is ready from the start need not be changed by KWOK first.
    is_late = stages.PREFIX + "ready-after" in annotations
    room = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods), "ephemeral-storage": "1Ti"}
    if shape.gpus and stages.PREFIX + "gpus-after" in annotations:
        annotations[stages.PREFIX + "gpus"] = str(shape.gpus)
    elif shape.gpus:
        room[stages.GPU] = str(shape.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**shape.labels, "kubernetes.io/hostname": name, "type": "kwok", **group.labels},
            "annotations": annotations,
        },
        "spec": {"taints": [parse_taint(taint) for taint in group.taints]},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [] if is_late else ready_conditions(),
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "kubeletVersion": f"v{KUBERNETES_VERSION}", "operatingSystem": "linux", "architecture": "amd64",
                "osImage": "", "kernelVersion": "", "containerRuntimeVersion": "kwok", "machineID": "", "bootID": "",
                "systemUUID": "", "kubeProxyVersion": "",
            },
        },
    }  # fmt: skip


def ready_conditions() -> list[dict[str, str]]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    troubles = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    fine = [{"type": name, "status": "False", "reason": "Fine", "message": "", **times} for name in troubles]
    return [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", **times}, *fine]


def add_nodes(with_api: api.Api, group: Group) -> list[str]:
    """Create the group's nodes; names continue where earlier nodes of the same prefix stop."""
    prefix = group.prefix or group.shape.name
    pattern = re.compile(re.escape(prefix) + r"-(\d+)")
    taken = [pattern.fullmatch(item["metadata"]["name"]) for item in with_api.items("/api/v1/nodes")]
    first = max((int(match[1]) for match in taken if match), default=-1) + 1
    names = [f"{prefix}-{number}" for number in range(first, first + group.count)]
    create_all(with_api.cluster, [node_object(name, group) for name in names])
    return names


def create_all(cluster: Cluster, objects: list[Object]) -> None:
    """Over several connections: one alone leaves the API idle between its requests."""

    def create(part: list[Object]) -> None:
        with_api = api.Api(cluster)
        try:
            for item in part:
                with_api.create(item)
        finally:
            with_api.close()

    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(create, [objects[number::CONNECTIONS] for number in range(CONNECTIONS)]))


def remove_nodes(with_api: api.Api, names: Iterable[str]) -> None:
    for name in names:
        with_api.delete(api.path_of("Node", "v1", name=name))


def ready_count(with_api: api.Api) -> int:
    nodes = with_api.items("/api/v1/nodes?labelSelector=type%3Dkwok")
    conditions = [condition for node in nodes for condition in node["status"].get("conditions", [])]
    return sum(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def wait_ready(with_api: api.Api, count: int) -> None:
    api.wait_for(f"{count} simulated nodes are ready", lambda: ready_count(with_api) >= count, READY_S)


def wait_untainted(with_api: api.Api, names: Iterable[str]) -> None:
    """Until these nodes have lost the taint of new ones, which goes a moment after they are ready."""
    wanted = set(names)

    def takes_pods() -> bool:
        nodes = with_api.items("/api/v1/nodes?labelSelector=type%3Dkwok")
        tainted = {node["metadata"]["name"] for node in nodes if "not-ready" in json.dumps(node["spec"].get("taints"))}
        return not wanted & tainted

    api.wait_for("new simulated nodes take pods", takes_pods, READY_S)


def arguments(cluster: Cluster) -> list[str]:
    selector = ",".join(f"{key}={value}" for key, value in MANAGED.items())
    return [
        f"--kubeconfig={cluster.folder / 'kwok.kubeconfig'}",
        f"--config={cluster.folder / 'stages.yaml'}",
        f"--manage-nodes-with-annotation-selector={selector}",
        f"--node-lease-duration-seconds={lease_s(cluster)}",
        "--cidr=10.0.0.1/16",
        "--node-ip=10.255.0.1",
    ]


def lease_s(cluster: Cluster) -> int:
    """A quarter of it is how often each node reports: rarely, where only simulated nodes are watched for silence."""
    return 40 if cluster.range is not None else 400


def start(cluster: Cluster, programs: Binaries, holder: int | None = None) -> Process:
    documents = "\n---\n".join(json.dumps(stage) for stage in stages.all_stages())
    (cluster.folder / "stages.yaml").write_text(documents + "\n")
    launch = Launch(
        "kwok",
        [str(programs["kwok"]), *arguments(cluster)],
        controlplane.environment(cluster, programs),
        cluster.logs / "kwok.log",
        holder,
    )
    process = processes.start(launch)
    processes.record(cluster.processes, process)
    return process
