"""Scale up for pods with affinity or topology spread: served on the whole fleet at once. Pure.

What they need cannot be told from one machine alone, so candidates for new machines are put beside what is there and
the fewest that will do are found by trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from longboat.autoscaler.model.daemonsets import daemon_pods
from longboat.autoscaler.model.machines import template
from longboat.autoscaler.purchase.offers import Fits, PoolOffer, Zone
from longboat.autoscaler.purchase.purchase import CapacityBudget, MachineGroup, price_key
from longboat.autoscaler.scale_up.demand import PendingWorkload
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.placement import where, withdraw
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import PODS
from longboat.fitting.packing import Placement, take, take_each


class NewMachines:
    """New machines for these units, with the pods that go there."""

    def __init__(self) -> None:
        self.groups: list[MachineGroup] = []
        self.units: list[PendingWorkload] = []
        self.nodes: list[tuple[NodeShape, list[Pod]]] = []

    def pods(self) -> set[tuple[str, str]]:
        return {(pod.namespace, pod.name) for _, pods in self.nodes for pod in pods}


class _Trial:
    """One trial: a fleet with candidate machines, and the pods left unplaced."""

    def __init__(self, fleet: Fleet, new: dict[str, tuple[PoolOffer, Zone]], left: list[Pod]) -> None:
        self.fleet, self.new, self.left = fleet, new, left
        self.used = {name: pair for name, pair in new.items() if _has_work(fleet, name)}

    def rank(self) -> tuple[int, int, float, int]:
        """Fewest left, pools of high priority, cheapest."""
        offers = [offer for offer, _ in self.used.values()]
        least = -min((offer.pool.priority for offer in offers), default=0)
        return len(self.left), least, round(sum(price_key(offer) for offer in offers), 9), len(offers)


def _has_work(fleet: Fleet, name: str) -> bool:
    return any(not pod.name.endswith(f"@{name}") for pod in fleet.states[name].pods.values())


def _is_work(pod: Pod) -> bool:
    return pod.owner not in ("DaemonSet", "Node") and "@" not in pod.name


def serve_with_affinity(
    units: Sequence[PendingWorkload], fleets: Fleets, fits: Fits, budget: CapacityBudget, earlier: Sequence[NewMachines]
) -> tuple[NewMachines, list[PendingWorkload]]:
    """Serve one gang, or alike single pods each on its own. Pods placed on existing machines stay in the fleets."""
    new = NewMachines()
    pods = [pod for unit in units for pod in unit.pods]
    is_gang = len(units) == 1
    if not any(
        _is_work(pod) for fleet in fleets.all[1:] for state in fleet.states.values() for pod in state.pods.values()
    ):
        left = _put(pods, fleets.ready, is_gang)
    else:  # who is on other machines counts too
        whole = _whole(fleets, earlier, is_closed=True)
        left = _put(pods, whole, is_gang)
        _mirror(pods, whole, fleets)
    if not left:
        return new, []
    whole = _whole(fleets, earlier)
    left = _put(left, whole, is_gang)
    if left:
        trial = _cheapest(left, whole, fits, budget, is_gang)
        if trial is not None:
            whole, left = trial.fleet, trial.left
            _note(trial, new)
    if left and is_gang:
        withdraw(pods, fleets.all)
        return NewMachines(), list(units)
    _mirror(pods, whole, fleets)
    lost = {(pod.namespace, pod.name) for pod in left}
    refused = [unit for unit in units if (unit.pods[0].namespace, unit.pods[0].name) in lost]
    bought = new.pods()
    new.units = [unit for unit in units if any((pod.namespace, pod.name) in bought for pod in unit.pods)]
    return new, refused


def _put(pods: Sequence[Pod], fleet: Fleet, is_gang: bool) -> list[Pod]:
    if not is_gang:
        return take_each(pods, fleet)
    return [] if isinstance(take(pods, fleet, explain=False), Placement) else list(pods)


def _whole(fleets: Fleets, earlier: Sequence[NewMachines], *, is_closed: bool = False) -> Fleet:
    """Ready, booting and ordered machines in one fleet; closed: no pod is placed on those that are not ready."""
    fleet = fleets.ready.copy()
    others = [(state.shape, list(state.pods.values())) for fleet in fleets.all[1:] for state in fleet.states.values()]
    others += [pair for new in earlier for pair in new.nodes]
    if is_closed:
        others = [(msgspec.structs.replace(shape, allocatable=((PODS, 0),)), pods) for shape, pods in others]
    _add(fleet, others)
    return fleet


def _add(fleet: Fleet, nodes: Sequence[tuple[NodeShape, list[Pod]]]) -> None:
    fleet.add_nodes(shape for shape, _ in nodes)
    for shape, pods in nodes:
        for pod in pods:
            fleet.add(pod, fleet.states[shape.name])


def _cheapest(left: list[Pod], whole: Fleet, fits: Fits, budget: CapacityBudget, is_gang: bool) -> _Trial | None:
    able: dict[str, set[Zone]] = {}
    for pod in {pod.shape: pod for pod in left}.values():
        for pool, zones in fits.now(pod).items():
            able.setdefault(pool, set()).update(zones)
    chances = [[pool] for pool in sorted(able)] + ([sorted(able)] if len(able) > 1 else [])
    trials = [
        trial for pools in chances if (trial := _fewest(left, whole, {p: able[p] for p in pools}, budget, is_gang))
    ]
    done = [trial for trial in trials if len(trial.left) < len(left)]
    return min(done, key=lambda trial: trial.rank(), default=None)


def _fewest(
    left: list[Pod], whole: Fleet, able: dict[str, set[Zone]], budget: CapacityBudget, is_gang: bool
) -> _Trial | None:
    """The trial with the fewest candidates that serves as many as with all of them."""
    most = len(left)
    best = _trial(left, whole, able, budget, most, is_gang)
    if best is None or len(best.left) == len(left):
        return best
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        trial = _trial(left, whole, able, budget, middle, is_gang)
        if trial is not None and len(trial.left) <= len(best.left):
            best, high = trial, middle
        else:
            low = middle
    return best


def _trial(
    left: list[Pod], whole: Fleet, able: dict[str, set[Zone]], budget: CapacityBudget, each: int, is_gang: bool
) -> _Trial | None:
    """A trial with up to `each` candidate machines of every pool and zone."""
    nodes: list[tuple[NodeShape, list[Pod]]] = []
    new: dict[str, tuple[PoolOffer, Zone]] = {}
    for pool, zones in able.items():
        offer = budget.offers[pool]
        room = budget.affords(pool, each * len(zones))
        ranked = sorted(zones, key=lambda zone: (offer.by_zone.get(zone or "", 0), zone or ""))
        for number in range(room):
            zone = ranked[number % len(ranked)]
            name = f"new-{pool}-{len(whole.states)}-{number:05d}"
            nodes.append((template(offer.pool, zone, name), daemon_pods(offer.daemons, name, set())))
            new[name] = (offer, zone)
    if not new:
        return None
    fleet = whole.copy()
    _add(fleet, nodes)
    trial = _Trial(fleet, new, _put(left, fleet, is_gang))
    return trial if _is_within(trial, budget) else None


def _is_within(trial: _Trial, budget: CapacityBudget) -> bool:
    """Whether all used machines together may be bought."""
    return budget.affords_all(Counter(sorted(offer.name for offer, _ in trial.used.values())))


def _note(trial: _Trial, new: NewMachines) -> None:
    for name, (offer, zone) in sorted(trial.used.items()):
        state = trial.fleet.states[name]
        new.groups.append(MachineGroup(offer.name, (zone,), (), 1))
        new.nodes.append((state.shape, list(state.pods.values())))


def _mirror(pods: Sequence[Pod], whole: Fleet, fleets: Fleets) -> None:
    """What was placed on the whole fleet is placed on the fleet that the machine belongs to."""
    for pod in pods:
        state = whole.where(pod)
        if state is None or where(pod, fleets.all) is not None:
            continue
        for fleet in fleets.all:
            if state.name in fleet.states:
                fleet.add(pod, fleet.states[state.name])
                break
