"""Bin packing of gangs: places for all pods or for none. Pure: `place` leaves the fleet, `take` puts the pods there.

Pods of one kind are placed together, the kind that asks for the scarcest first, each on the node that it fills best.
For pods of one kind the answer is exact. For several kinds a few orders are tried and then, where the gang is small,
all ways up to a bound: "it fits" is always true, "it does not" may be wrong for a large mixed gang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from longboat.core.jobs import Value
from longboat.core.words import counted
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import CPU, MEMORY, is_scarce, scarcity
from longboat.fitting.node_state import NodeState
from longboat.fitting.pod_affinity import AffinityView
from longboat.fitting.search import search
from longboat.fitting.shortfalls import ResourceShortfall, lacks_of, refusals_of

Pairs = list[tuple[Pod, NodeState]]
Domain = tuple[str, str]
"""A node label and the value it must have."""


class Placement(Value, frozen=True):
    """A node for every pod, in the order in which the pods were given."""

    nodes: tuple[str, ...]


class Shortfall(Value, frozen=True):
    """Why not all pods can be placed now."""

    pod: Pod  # of the kind that found no place
    placed: int  # so many of that kind did, after the kinds before it
    wanted: int
    lacks: tuple[
        ResourceShortfall, ...
    ] = ()  # what there is too little of on the nodes that would do; empty: no such node
    refusals: tuple[tuple[str, int], ...] = ()  # reason -> on how many nodes, most frequent first

    @property
    def reason(self) -> str:
        parts = [f"{counted(count, 'node')}: {text}" for text, count in self.refusals[:5]]
        return "; ".join(parts) or "there are no nodes"


class IdenticalPods(Value, frozen=True):
    """Pods that are alike in all that matters."""

    pods: tuple[Pod, ...]

    @property
    def shape(self) -> PodShape:
        return self.pods[0].shape


def place(pods: Sequence[Pod], fleet: Fleet, *, explain: bool = True) -> Placement | Shortfall:
    """A placement of all pods, with their effects on each other, or the shortfall. The fleet is left as it is.

    Without `explain` a Shortfall has no `lacks` and `refusals`, which take a look at every node.
    """
    answer, pairs = _place(pods, fleet, explain)
    for pod, _ in pairs:
        fleet.remove(pod)
    return answer


def take(pods: Sequence[Pod], fleet: Fleet, *, explain: bool = True) -> Placement | Shortfall:
    """Like `place`, and the pods are put there."""
    return _place(pods, fleet, explain)[0]


def take_each(pods: Sequence[Pod], fleet: Fleet) -> list[Pod]:
    """Put each where it fits, on its own; returns those that fit nowhere."""
    left = []
    for kind in kinds_of(pods, fleet):
        placed = {(pod.namespace, pod.name) for pod, _ in _fill(kind, fleet, ())}
        left += [pod for pod in kind.pods if (pod.namespace, pod.name) not in placed]
    return left


def _place(pods: Sequence[Pod], fleet: Fleet, explain: bool) -> tuple[Placement | Shortfall, Pairs]:
    if not pods:
        return Placement(nodes=()), []
    kinds = kinds_of(pods, fleet)
    failed: Shortfall | None = None
    for order in _orders(kinds, fleet):
        for domains in _starts(kinds, fleet):
            pairs, lacking = _fill_all(order, fleet, domains)
            if lacking is None:
                return _placement(pods, fleet), pairs
            failed = failed or _shortfall(lacking, pairs, fleet, explain)
            for pod, _ in pairs:
                fleet.remove(pod)
    searched = search([pod for kind in kinds for pod in kind.pods], fleet) if len(kinds) > 1 else None
    if searched is not None:
        return _placement(pods, fleet), searched
    return failed or Shortfall(pod=pods[0], placed=0, wanted=len(pods)), []


def _placement(pods: Sequence[Pod], fleet: Fleet) -> Placement:
    states = [fleet.where(pod) for pod in pods]
    return Placement(nodes=tuple(state.name for state in states if state is not None))


def kinds_of(pods: Sequence[Pod], fleet: Fleet) -> list[IdenticalPods]:
    """Classes of alike pods, the one that asks for the scarcest things first. Input order makes no difference."""
    groups: dict[tuple[PodShape, tuple[tuple[str, str], ...]], list[Pod]] = {}
    shapes = {pod.shape for pod in pods}
    is_plain = fleet.topology.is_quiet and not any(shape.near or shape.apart or shape.spread for shape in shapes)
    keys = frozenset[str]() if is_plain else _label_keys(pods, fleet)
    for pod in pods:
        labels = () if is_plain else tuple((key, value) for key, value in sorted(pod.labels.items()) if key in keys)
        groups.setdefault((pod.shape, labels if is_plain else (*labels, ("", pod.namespace))), []).append(pod)
    totals = fleet.totals()
    ranked = sorted(groups, key=lambda group: (_size(group[0], totals), msgspec.json.encode(group)))
    return [IdenticalPods(pods=tuple(groups[group])) for group in ranked]


def _label_keys(pods: Sequence[Pod], fleet: Fleet) -> frozenset[str]:
    shapes = {pod.shape: pod for pod in pods}
    return frozenset().union(*(fleet.topology.labels_looked_at(pod) for pod in shapes.values()))


def _size(shape: PodShape, totals: dict[str, int]) -> tuple[tuple[tuple[int, int, str], ...], float]:
    """Sorts by devices (GPUs before others, more before fewer), then by the largest share of anything else."""
    devices = sorted((scarcity(name)[0], -count, name) for name, count in shape.requests if is_scarce(name))
    shares = [count / max(1, totals.get(name, 0)) for name, count in shape.requests if not is_scarce(name)]
    # Pods without devices come last.
    return tuple(devices) or ((9, 0, ""),), -max(shares, default=0.0)


def _orders(kinds: list[IdenticalPods], fleet: Fleet) -> Iterator[list[IdenticalPods]]:
    yield kinds
    if len(kinds) > 1:
        choice = {id(kind): len(fleet.eligible(kind.shape.placing)) for kind in kinds}
        picky = sorted(kinds, key=lambda kind: choice[id(kind)])
        large = sorted(kinds, key=lambda kind: (-kind.shape.asks(MEMORY), -kind.shape.asks(CPU)))
        seen = [kinds]
        for order in (picky, large):
            if order not in seen:
                seen.append(order)
                yield order


def _starts(kinds: list[IdenticalPods], fleet: Fleet) -> Iterator[tuple[Domain, ...]]:
    """Where the first pod of a gang whose pods want to be near each other may start: each domain in turn."""
    keys: dict[str, None] = {}
    for kind in kinds:
        if kind.shape.near and AffinityView(kind.pods[0], fleet).is_first:
            keys.update((term.key, None) for term in kind.shape.near)
    if not keys:
        yield ()
        return
    seen = {tuple((key, state.shape.labels.get(key, "")) for key in sorted(keys)) for state in fleet.states.values()}
    yield from sorted(seen)


def _fill_all(
    order: Sequence[IdenticalPods], fleet: Fleet, domains: tuple[Domain, ...]
) -> tuple[Pairs, IdenticalPods | None]:
    """All kinds in this order, up to the first that does not find room for all its pods."""
    pairs: Pairs = []
    for kind in order:
        placed = _fill(kind, fleet, domains if kind.shape.near else ())
        pairs += placed
        if len(placed) < len(kind.pods):
            return pairs, kind
    return pairs, None


def _fill(kind: IdenticalPods, fleet: Fleet, domains: tuple[Domain, ...]) -> Pairs:
    """As many pods of the kind as find a place."""
    shape = kind.shape
    primary = min((name for name, _ in shape.requests if is_scarce(name)), key=scarcity, default="")
    index = fleet.best_fit(shape, primary)
    affinity = AffinityView(kind.pods[0], fleet)
    pairs: Pairs = []
    left = list(reversed(kind.pods))
    while left:
        before = len(left)
        for state in index.walk(shape.asks(primary), shape.asks(CPU)):
            if domains and any(state.shape.labels.get(key, "") != value for key, value in domains):
                continue
            if affinity.is_alone:
                pairs += _put(left, state.fits(shape), state, fleet)
            else:
                while left and affinity.allows(state) and state.fits(shape):
                    pairs += _put(left, 1, state, fleet)
                    affinity.placed(state)
            if not left:
                break
        # A pod that was placed may have made room for others: near it, or where the spread now allows.
        if affinity.is_alone or len(left) == before:
            break
    return pairs


def _put(left: list[Pod], count: int, state: NodeState, fleet: Fleet) -> Pairs:
    pairs = [(left.pop(), state) for _ in range(min(count, len(left)))]
    for pod, _ in pairs:
        fleet.add(pod, state)
    return pairs


def _shortfall(kind: IdenticalPods, pairs: Pairs, fleet: Fleet, explain: bool) -> Shortfall:
    """The shortfall, computed while the pods that found a place are still in the fleet."""
    pod = kind.pods[0]
    mine = {(pod.namespace, pod.name) for pod in kind.pods}
    placed = sum((pod.namespace, pod.name) in mine for pod, _ in pairs)
    return Shortfall(
        pod=pod,
        placed=placed,
        wanted=len(kind.pods),
        lacks=lacks_of(pod.shape, len(kind.pods), placed, fleet) if explain else (),
        refusals=refusals_of(pod, fleet) if explain else (),
    )
