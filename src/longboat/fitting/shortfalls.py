"""Shortfalls: which resource pods lack when they find no place, and on how many nodes for which reason. Pure."""

from __future__ import annotations

from longboat.core.jobs import Value
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import scarcity, show_number
from longboat.fitting.node_state import NodeState
from longboat.fitting.pod_affinity import AffinityView
from longboat.fitting.predicates import amount_refusals, placing_refusals


class ResourceShortfall(Value, frozen=True):
    """A resource that there is too little of, on the nodes where the pods may be. Amounts as in `quantities`."""

    resource: str
    each: int  # asked for by one pod
    pods: int
    free: int  # on all those nodes together
    total: int
    largest: int  # the most that is free on one node

    def __str__(self) -> str:
        text = f"{show_number(self.resource, self.free)} free of {show_number(self.resource, self.total)}"
        if self.free >= self.each * self.pods:
            text += f", at most {show_number(self.resource, self.largest)} on one node"
        return text


def lacks_of(shape: PodShape, wanted: int, placed: int, fleet: Fleet) -> tuple[ResourceShortfall, ...]:
    """The resources that keep the rest of `wanted` pods out, with `placed` of them in the fleet. Scarcest first.

    Those that would be too little even if nothing else counted; if it takes several together, those that are short on
    some node.
    """
    states = [fleet.states[name] for name in fleet.eligible(shape.placing)]
    if not states:
        return ()
    missing = wanted - placed
    alone, together = [], []
    for resource, each in sorted(shape.requests, key=lambda pair: scarcity(pair[0])):
        if each <= 0:
            continue
        free = [max(0, state.free.get(resource, 0)) for state in states]
        # What the placed pods of the same gang took is theirs to count.
        lack = ResourceShortfall(
            resource=resource,
            each=each,
            pods=wanted,
            free=sum(free) + each * placed,
            total=sum(state.shape.has(resource) for state in states),
            largest=max(free, default=0),
        )
        if sum(amount // each for amount in free) < missing:
            alone.append(lack)
        if any(amount < each for amount in free):
            together.append(lack)
    return tuple(alone or together)


def refusals_of(pod: Pod, fleet: Fleet) -> tuple[tuple[str, int], ...]:
    """Every reason with the number of nodes it holds on, most frequent first. Nodes in one state are judged once."""
    affinity = AffinityView(pod, fleet)
    able = set(fleet.eligible(pod.shape.placing))
    known: dict[object, str] = {}
    counts: dict[str, int] = {}
    for state in fleet.states.values():
        mark = _mark(pod, state, state.name in able, affinity)
        text = known.get(mark)
        if text is None:
            text = known[mark] = _reason(pod, state, affinity)
        counts[text] = counts.get(text, 0) + 1
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _reason(pod: Pod, state: NodeState, affinity: AffinityView) -> str:
    reasons = placing_refusals(pod.shape.placing, state.shape)
    reasons = reasons or [*amount_refusals(pod, state), *affinity.refusals(state)]
    return "; ".join(reasons) or "taken by pods of the same gang"


def _mark(pod: Pod, state: NodeState, is_able: bool, affinity: AffinityView) -> object:
    """Equal for nodes that give the same reason."""
    node: NodeShape = state.shape
    if not is_able or not affinity.is_alone or pod.shape.ports:
        looked_at = {requirement[0] for requirement in pod.shape.placing.selector}
        if pod.shape.placing.affinity is None and not pod.shape.placing.volumes and not is_able:
            labels = tuple((key, node.labels.get(key)) for key in sorted(looked_at))
            return (labels, node.taints, node.is_unschedulable)
        return state.name
    has = tuple((state.free.get(name, 0), node.has(name) > 0) for name, _ in pod.shape.requests)
    return (has, state.room if state.room > 0 else (0, len(state.pods)))
