"""Pods, nodes, workloads and records as the API prints them, without the fields that nobody here reads.

Types to decode lists into: of ten thousand pods, whole dicts take 310 MB and several seconds. Not views, which are
values that decisions read (`snapshot`, `longboat.fitting`).
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from longboat.core.guards.decoding import convert

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that still hold or want something."""

ENDING = ("SuccessCriteriaMet", "FailureTarget")
OVER = ("Complete", "Failed", "Completed")
"""Conditions of a Job or JobSet that has ended."""

Quantities = dict[str, str | int | float]


class _Owner(TypedDict, total=False):
    kind: str
    uid: str
    controller: bool


class _Meta(TypedDict, total=False):
    name: str
    namespace: str
    labels: dict[str, str]
    ownerReferences: list[_Owner]
    deletionTimestamp: str


class _RunMeta(_Meta, total=False):
    uid: str
    annotations: dict[str, str]
    resourceVersion: str
    creationTimestamp: str
    deletionGracePeriodSeconds: int


class _Resources(TypedDict, total=False):
    requests: Quantities
    limits: Quantities


class _Port(TypedDict, total=False):
    hostPort: int
    containerPort: int
    hostIP: str
    protocol: str


class _Container(TypedDict, total=False):
    name: str
    resources: _Resources
    restartPolicy: str
    ports: list[_Port]


class _BoundSpec(TypedDict, total=False):
    nodeName: str
    containers: list[_Container]
    initContainers: list[_Container]
    resources: _Resources
    overhead: Quantities
    affinity: dict[str, Any]
    hostNetwork: bool


class _Phase(TypedDict, total=False):
    phase: str


class BoundPod(TypedDict, total=False):
    """What a pod takes of its node and whom it bars from it.

    Not a SlimPod: of ten thousand pods it takes half the memory and half the time, and every submit reads all pods.
    """

    metadata: _Meta
    spec: _BoundSpec
    status: _Phase


class _Claim(TypedDict, total=False):
    claimName: str


class _Volume(TypedDict, total=False):
    name: str
    persistentVolumeClaim: _Claim
    ephemeral: dict[str, Any]


class _PodSpec(_BoundSpec, total=False):
    nodeSelector: dict[str, str]
    tolerations: list[dict[str, Any]]
    topologySpreadConstraints: list[dict[str, Any]]
    volumes: list[_Volume]
    priority: int
    restartPolicy: str
    schedulingGates: list[dict[str, Any]]


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str


class _ExitCode(TypedDict, total=False):
    exitCode: int


class _ContainerState(TypedDict, total=False):
    terminated: _ExitCode


class _ContainerStatus(TypedDict, total=False):
    name: str
    allocatedResources: Quantities
    state: _ContainerState


class _PodStatus(_Phase, total=False):
    conditions: list[_Condition]
    containerStatuses: list[_ContainerStatus]


class SlimPod(TypedDict, total=False):
    """A pod with all fields that decide where it fits."""

    metadata: _Meta
    spec: _PodSpec
    status: _PodStatus


class _Image(TypedDict, total=False):
    name: str
    image: str


class _RunPodSpec(TypedDict, total=False):
    nodeName: str
    containers: list[_Image]
    initContainers: list[_Image]


class RunPod(TypedDict, total=False):
    """A pod of a run, with what `pod_view` reads: all of its status, and of its spec next to nothing."""

    metadata: _RunMeta
    spec: _RunPodSpec
    status: dict[str, Any]


class _NodeSpec(TypedDict, total=False):
    unschedulable: bool
    taints: list[dict[str, str]]


class _NodeStatus(TypedDict, total=False):
    allocatable: Quantities
    capacity: Quantities
    conditions: list[dict[str, Any]]


class SlimNode(TypedDict, total=False):
    """A node without its images, addresses and annotations."""

    metadata: _Meta
    spec: _NodeSpec
    status: _NodeStatus


class _WatchedMeta(TypedDict, total=False):
    name: str
    uid: str
    resourceVersion: str


class _Tainted(TypedDict, total=False):
    taints: list[dict[str, str]]


class WatchedNode(TypedDict, total=False):
    """A node with its taints alone: all nodes of a cluster stay in memory where they are watched."""

    metadata: _WatchedMeta
    spec: _Tainted


class _WorkloadSpec(TypedDict, total=False):
    suspend: bool


class _WorkloadStatus(TypedDict, total=False):
    conditions: list[dict[str, Any]]
    failedIndexes: str


class SlimWorkload(TypedDict, total=False):
    """A Job or a JobSet with what `workload_view` and RunObject read: templates are most of it."""

    metadata: _RunMeta
    spec: _WorkloadSpec
    status: _WorkloadStatus


class SlimRecord(TypedDict, total=False):
    """The ConfigMap of a run, without the diary of its fields' managers."""

    metadata: _RunMeta
    data: dict[str, str]


class RunObject(msgspec.Struct):
    """A record, pod, Job or JobSet with what the controller keeps of it. A struct: all runs' stay in memory."""

    class Meta(msgspec.Struct, rename="camel"):
        name: str = ""
        namespace: str = ""
        uid: str = ""
        resource_version: str = ""
        deletion_timestamp: str = ""
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}

    class Data(msgspec.Struct):
        state: str = "{}"

    class Spec(msgspec.Struct):
        suspend: bool | None = None

    class Status(msgspec.Struct, rename="camel"):
        class Condition(msgspec.Struct):
            type: str = ""
            status: str = ""
            reason: str = ""
            message: str = ""  # which nodes the scheduler has refused, and why

        class Container(msgspec.Struct, rename="camel"):
            class ContainerState(msgspec.Struct):
                class End(msgspec.Struct, rename="camel"):
                    exit_code: int = 0

                class Waiting(msgspec.Struct):
                    reason: str = ""

                terminated: End | None = None
                waiting: Waiting | None = None

            name: str = ""
            restart_count: int = 0
            state: ContainerState = msgspec.field(default_factory=ContainerState)

        phase: str = ""
        conditions: list[Condition] = []
        failed_indexes: str = ""
        container_statuses: list[Container] = []
        init_container_statuses: list[Container] = []

    metadata: Meta = msgspec.field(default_factory=Meta)
    data: Data = msgspec.field(default_factory=Data)
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def is_over(self) -> bool:
        """Of a pod or a workload: it holds nothing any more."""
        conditions = self.status.conditions
        return self.status.phase in ("Succeeded", "Failed") or any(
            condition.type in OVER and condition.status == "True" for condition in conditions
        )

    @property
    def is_ending(self) -> bool:
        """Of a Job: its outcome is known, and its last pods go."""
        return any(condition.type in ENDING and condition.status == "True" for condition in self.status.conditions)

    @property
    def mark(self) -> tuple[object, ...] | None:
        """What a turn could act on; two versions with the same mark are alike to it. None: any change may matter.

        Counts in a Job's status follow its pods, which are watched themselves.
        """
        status = self.status
        if status.phase not in ("", "Pending", "Running", "Succeeded", "Failed"):
            return None
        conditions = tuple((each.type, each.status, each.reason, each.message) for each in status.conditions)
        containers = tuple(
            (each.name, each.restart_count, each.state.terminated is None, each.state.waiting)
            for each in (*status.init_container_statuses, *status.container_statuses)
        )
        meant = (self.metadata.deletion_timestamp, self.spec.suspend, status.failed_indexes)
        return (status.phase, *meant, conditions, containers)


def run_object(item: Any) -> RunObject:
    """An object of the types above as the controller keeps it."""
    return item if isinstance(item, RunObject) else convert(item, RunObject)
