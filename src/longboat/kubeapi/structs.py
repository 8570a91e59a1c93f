"""Slim views of Kubernetes objects: the fields that Longboat reads, each of them optional, everything else skipped.

Ten thousand pods fit into little memory this way. `Any` marks what is kept as it came. Objects are written as plain
dicts, never from these.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ObjectView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all views: immutable; unknown fields are ignored."""


class OwnerReference(ObjectView, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(ObjectView, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Condition(ObjectView, frozen=True):
    """Of pods, nodes, jobs and job sets alike."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    last_probe_time: str | None = None


class Object(ObjectView, frozen=True):
    """What every object has. Enough where only names, labels and owners are asked for."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()


class ConfigMap(Object, frozen=True):
    data: dict[str, str] = {}


class Requirements(ObjectView, frozen=True):
    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}
    claims: Any = None


class Container(ObjectView, frozen=True):
    name: str = ""
    image: str = ""
    resources: Requirements = Requirements()
    restart_policy: str | None = None  # Always: a sidecar, in init_containers
    ports: Any = None


class TolerationObject(ObjectView, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(ObjectView, frozen=True):
    name: str = ""


class PodSpec(ObjectView, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str | int | float] = {}
    resources: Requirements | None = None
    node_selector: dict[str, str] = {}
    tolerations: tuple[TolerationObject, ...] = ()
    affinity: Any = None
    topology_spread_constraints: Any = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduler_name: str = ""
    volumes: Any = None
    resource_claims: Any = None
    runtime_class_name: str | None = None
    restart_policy: str = ""
    host_network: bool | None = None
    termination_grace_period_seconds: int | None = None


class ContainerWaiting(ObjectView, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerRunning(ObjectView, frozen=True):
    started_at: str | None = None


class Terminated(ObjectView, frozen=True):
    exit_code: int = 0
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(ObjectView, frozen=True):
    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: Terminated | None = None


class ContainerStatus(ObjectView, frozen=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")


class PodStatus(ObjectView, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    start_time: str | None = None
    qos_class: str = ""


class PodObject(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class TaintObject(ObjectView, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(ObjectView, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[TaintObject, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeAddress(ObjectView, frozen=True):
    type: str = ""
    address: str = ""


class NodeInfo(ObjectView, frozen=True):
    architecture: str = ""
    operating_system: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""


class NodeStatus(ObjectView, frozen=True):
    capacity: dict[str, str | int | float] = {}
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: NodeInfo = NodeInfo()


class NodeObject(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class JobSpec(ObjectView, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    managed_by: str | None = None
    template: Any = None


class JobStatus(ObjectView, frozen=True):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class JobObject(Object, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ReplicatedJobStatus(ObjectView, frozen=True):
    name: str = ""
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    suspended: int = 0


class JobSetSpec(ObjectView, frozen=True):
    suspend: bool | None = None
    managed_by: str | None = None
    replicated_jobs: Any = None


class JobSetStatus(ObjectView, frozen=True):
    restarts: int = 0
    terminal_state: str = ""
    conditions: tuple[Condition, ...] = ()
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()


class JobSet(Object, frozen=True):
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


class Reference(ObjectView, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    field_path: str = ""


class EventSeries(ObjectView, frozen=True):
    count: int | None = None
    last_observed_time: str | None = None


class EventSource(ObjectView, frozen=True):
    component: str = ""
    host: str = ""


class Event(Object, frozen=True):
    involved_object: Reference = Reference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""
