"""Values of the gate: who wants to be let in, what the cluster has, and the verdicts over them."""

from __future__ import annotations

from typing import Literal

from longboat.core.jobs import Value
from longboat.engines.kubernetes.gate.sizes import ElasticPods
from longboat.fitting.backfill import UpcomingNode
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod

Action = Literal["let_in", "wait", "put_back", "keep", "resize"]
"""`keep`: it is in already, nothing to do. `resize`: it gets another size first, and is judged again."""


class GateCandidate(Value, frozen=True):
    """A run that waits at the gate, is being retried, or was let in and does not have all its pods yet."""

    run: str
    uid: str
    created: float
    pods: tuple[Pod, ...]  # the whole gang, named after its nodes: worker-0, ...
    spares: int = 0  # of these pods, those of spare nodes
    namespace: str = "default"
    priority: int = 0
    let_in: float | None = None  # when; None while it waits
    tries: int = 0  # how often it was put back
    not_before: float = 0.0
    is_recovering: bool = False  # a retry: it keeps its place and what it had
    placed: tuple[str, ...] = ()  # names out of `pods` whose pods are bound, or have been
    made: int = 0  # pods that exist
    ready: int = 0
    unschedulable: int = 0  # pods that the scheduler looked at and found no node for
    gate_s: float = 300.0  # how long it may take until all its pods have a node, as its record says
    not_made: int = 0  # pods that never came into being, because of a quota for example
    held: str = ""  # why a budget holds it back; it keeps nobody waiting
    lasts_s: float | None = None  # how long it holds its nodes at most, once it is in; None: nobody knows
    elastic: ElasticPods | None = None  # its pods at other sizes

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.run}"

    @property
    def order(self) -> tuple[int, bool, float, str, str]:
        return (-self.priority, not self.is_recovering, self.created, self.run, self.namespace)

    @property
    def rest(self) -> tuple[Pod, ...]:
        """The pods that have no node yet."""
        return tuple(pod for pod in self.pods if pod.name not in self.placed)


class ClusterUsage(Value, frozen=True):
    """The cluster: its nodes and all pods that hold or want something on them."""

    nodes: tuple[NodeShape, ...]
    pods: tuple[Pod, ...] = ()
    upcoming: tuple[UpcomingNode, ...] = ()  # ordered by the autoscaler


class Admission(Value, frozen=True):
    run: str
    namespace: str
    action: Action
    reason: str = ""
    not_before: float = 0.0
    tries: int = 0
    is_held: bool = False  # a budget holds it back
    size: int | None = None  # of an elastic run: the one to get, or of one that is in the one wanted; None: its own
    size_reason: str = ""  # why it has no more, or another one is wanted
    fits: bool = True  # whether there is room for the size that it gets


class Prospect(Value, frozen=True):
    """What the gate would say to a run that is not there yet."""

    starts: bool = False
    is_possible: bool = True  # on these nodes and those that are on their way
    start: float | None = None  # when, of one that waits; None: that depends on ends that nobody knows
    reason: str = ""
