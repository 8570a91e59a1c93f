"""Snapshot and settings of the autoscaler: all that `decide` reads. Values only."""

from __future__ import annotations

from typing import Literal

from longboat.core.jobs import Value
from longboat.core.times import format_time
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.selectors import Term, matches_labels

POOL_LABEL = "longboat.dev/pool"
CORDONED = "longboat.dev/cordoned-at"
IDLE = "longboat.dev/idle-since"
UNDERUSED = "longboat.dev/underused-since"

DEVICES = "deviceclass/"
"""Begins the names of resources that stand for the devices of a DeviceClass (dynamic resource allocation)."""

FailureKind = Literal["stockout", "quota", "auth", "throttled", "not-found", "min-size", "other"]


class Pool(Value, frozen=True):
    """Machines of one kind that a provider can make and delete."""

    name: str
    machine: NodeShape  # an empty one, as it will join: allocatable before DaemonSets, labels, taints
    provider: str = "kwok"
    min: int = 0
    max: int = 0
    price: float = 0.0  # per hour
    spot: bool = False
    boot_s: float = 300.0  # from the order until pods can run; GPU machines of clouds take minutes
    gpu_resource: str = "nvidia.com/gpu"  # what pods ask for its GPUs by
    zones: tuple[str, ...] = ()
    priority: int = 0  # higher is preferred before price
    zero_or_max: bool = False
    growth_s: float = 0.0  # how long a machine waits for an elastic run to grow; 0: none is bought for that
    devices: dict[str, int] = {}  # DeviceClass -> how many of its devices a machine has, as stated
    is_estimated: bool = False  # `machine` is by a cloud's description: corrected by what nodes show


class ResourceLimits(Value, frozen=True):
    """Limits of all pools together, in milli-CPUs and bytes; None: no limit."""

    cpus: int | None = None
    memory: int | None = None
    gpus: int | None = None


class AutoscalerSettings(Value, frozen=True):
    idle_s: float = 600.0  # two boots: who sends the next run within minutes need not wait for a machine
    spare: int = 0  # empty machines kept in every pool that is in use
    over_provision: int = 0  # machines ordered on top of what demand asks for, in the pools that grow
    limits: ResourceLimits = ResourceLimits()
    max_shrink_per_loop: int = 10  # if what was seen is wrong, no more are lost at once
    max_drains: int = 1  # nodes drained at a time: their pods need places
    expendable_below: int = -10  # a pod's priority, as cluster-autoscaler has it
    utilization: float = 0.5  # below this share of its scarcest resource a node is under-utilized
    consolidate: bool = True
    replace: bool = True  # exchange nodes for cheaper machines, where consolidate is on
    replace_saving: float = 0.2  # of the price of a node: what an exchange must save at least
    join_factor: float = 3.0  # a machine that has not joined after boot x this has failed
    backoff_s: float = 900.0  # after a stockout and the like, doubling up to backoff_max_s
    backoff_max_s: float = 3600.0


class Gang(Value, frozen=True):
    """Pods that run together or not at all. Also a run that still waits suspended: its pods do not exist yet."""

    name: str  # namespace/name
    pods: tuple[Pod, ...]  # those that have no node yet
    created: float = 0.0
    priority: int = 0
    run: str | None = None
    is_suspended: bool = False
    held: int = 0  # its pods that have a node
    hold: str = ""  # why machines would not help it: pods missing, no quota
    owner: str = ""  # uid of the run's record, as its Jobs have it


class ElasticGang(Value, frozen=True):
    """A run that has all its pods running, and may have more nodes than it has."""

    name: str  # namespace/name
    pods: tuple[Pod, ...]  # what its largest size has besides
    size: int  # nodes that it has
    largest: int
    since: float = 0.0  # the start of its attempt
    priority: int = 0
    zones: tuple[str, ...] = ()  # of its pods

    @property
    def size_text(self) -> str:
        return f"{self.size} of at most {self.largest} nodes"

    @property
    def text(self) -> str:
        return f"{self.name} ({self.size_text})"


class Order(Value, frozen=True):
    """Machines asked of a provider that have not joined as nodes."""

    pool: str
    machine: str  # the provider's id
    asked: float
    zone: str | None = None
    gang: str | None = None  # whom it was ordered for


class ProviderFailure(Value, frozen=True):
    """A provider's refusal, remembered until its backoff is over."""

    pool: str
    kind: FailureKind
    at: float
    zone: str | None = None
    count: int = 1  # in a row
    message: str = ""
    provider: str = ""  # of the pool; who throttles does so for all of its pools
    is_blind: bool = False  # the list of machines cannot be had: tried again in every loop
    setup: str = ""  # of an `auth`: what the pools file said about pool and provider then


class NodeMemory(Value, frozen=True):
    """What earlier loops wrote on a node."""

    node: str
    idle_since: float | None = None
    cordoned_at: float | None = None  # by us
    underused_since: float | None = None


class DisruptionBudget(Value, frozen=True):
    """A PodDisruptionBudget: how many of the pods it selects may be evicted now."""

    namespace: str
    selector: dict[str, str] = {}
    allowed: int = 0
    name: str = ""
    expressions: Term = ()  # that must hold besides
    selects_nothing: bool = False
    spares_unready: bool = True  # pods that are not ready count like those that are

    def covers(self, pod: Pod) -> bool:
        if self.selects_nothing or self.namespace != pod.namespace:
            return False
        labels = pod.labels
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return False
        return not self.expressions or matches_labels(self.expressions, labels)


class SeenNode(Value, frozen=True):
    """A node, with what matters of it besides fitting."""

    shape: NodeShape
    created: float = 0.0
    is_ready: bool = True
    ready_since: float | None = None  # the last change of its readiness
    kept: str = ""  # which annotation forbids its removal
    kept_until: float | None = None  # None: for good
    is_going: bool = False  # being deleted
    machine: str | None = None  # the provider's id
    lost: tuple[
        str, ...
    ] = ()  # devices that it has shown and that pods cannot have now: their plugin restarts, or worse

    @property
    def name(self) -> str:
        return self.shape.name

    @property
    def pool(self) -> str | None:
        return self.shape.labels.get(POOL_LABEL)


class SeenPod(Value, frozen=True):
    """A pod, with what matters of it besides fitting."""

    pod: Pod
    created: float = 0.0
    ended: float | None = None  # of a finished one
    kept: str = ""  # why it must not be moved
    kept_until: float | None = None  # None: for good
    daemon: str | None = None  # namespace/name of its DaemonSet; empty: a part of the node
    nominated: str | None = None  # the scheduler makes room for it on this node
    gang: str | None = None  # name of its gang
    hold: str = ""  # why machines would not help it
    beyond: str | None = None  # the gang that must be served before it, of which it is not one of the least members
    is_unready: bool = False  # and says so

    @property
    def name(self) -> str:
        return f"{self.pod.namespace}/{self.pod.name}"

    def kept_now(self, now: float) -> str:
        """Why it must not be moved at this time; empty: it may."""
        return kept_at(self.kept, self.kept_until, now)


def kept_at(reason: str, until: float | None, now: float) -> str:
    """The reason for which something is kept, with its end; empty once that is over."""
    if not reason or (until is not None and until <= now):
        return ""
    return reason + (f" until {format_time(until)}" if until is not None else "")


class Daemon(Value, frozen=True):
    """A DaemonSet: every node it applies to loses as much."""

    name: str
    shape: PodShape


class ClusterSnapshot(Value, frozen=True):
    nodes: tuple[SeenNode, ...] = ()
    pods: tuple[SeenPod, ...] = ()  # bound, pending and finished, those of gangs included
    gangs: tuple[Gang, ...] = ()  # that wait, whole or in part
    elastic: tuple[ElasticGang, ...] = ()  # that run, and could have more
    daemons: tuple[Daemon, ...] = ()
    pools: tuple[Pool, ...] = ()
    orders: tuple[Order, ...] = ()
    failures: tuple[ProviderFailure, ...] = ()
    memory: tuple[NodeMemory, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}  # labels, where they are known
    odd: tuple[str, ...] = ()  # objects that cannot be read, each with its reason: they are held or passed over
