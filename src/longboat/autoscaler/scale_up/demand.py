"""Pending demand: gangs as wholes, other pods one by one, in the order of service. Pure."""

from __future__ import annotations

from longboat.autoscaler.model.plan import PendingItem
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot, ElasticGang, Gang, SeenPod
from longboat.core.jobs import Value
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import is_scarce


class PendingWorkload(Value, frozen=True):
    """What is served as a whole or not at all."""

    name: str  # namespace/name
    pods: tuple[Pod, ...]
    priority: int = 0
    created: float = 0.0
    is_run: bool = False  # a gang; else one pod
    held: int = 0  # pods of the gang that have a node
    is_suspended: bool = False
    zones: tuple[str, ...] = ()  # of the pods of the gang that have a node
    after: str | None = None  # the gang that has to be served for this one to be

    def waits(self, reason: str, *, pool: str | None = None, expected: float | None = None) -> PendingItem:
        if self.is_run:
            return PendingItem(run=self.name, reason=reason, pool=pool, expected=expected)
        return PendingItem(pod=self.name, reason=reason, pool=pool, expected=expected)

    def after_whom(self) -> str:
        return f"its gang {self.after} comes first: as a whole or not at all"


class Demand(Value, frozen=True):
    units: tuple[PendingWorkload, ...] = ()  # in the order in which they are served
    held: tuple[PendingItem, ...] = ()  # pending, but more machines would not help
    elastic: tuple[ElasticGang, ...] = ()  # waits for nothing, and could have more; who comes first is first


def demand_of(snapshot: ClusterSnapshot, settings: AutoscalerSettings) -> Demand:
    """Priority first; then those who need devices, so that what has them is kept for them; then gangs, then age."""
    units: list[PendingWorkload] = []
    held: list[PendingItem] = []
    zones = _zones_of_gangs(snapshot)
    for gang in snapshot.gangs:
        _sort_in(_unit_of_gang(gang, zones.get(gang.name, ())), gang.hold, settings, units, held)
    whole = {gang.name for gang in snapshot.gangs}
    stopped = {item.run for item in held}
    for pod in snapshot.pods:
        if is_pending(pod) and not (pod.gang is not None and pod.gang in whole):
            unit = PendingWorkload(
                name=pod.name, pods=(pod.pod,), priority=pod.pod.priority, created=pod.created, after=pod.beyond
            )
            reason = pod.hold or (unit.after_whom() if pod.beyond in stopped else "")
            if pod.nominated and not reason:
                reason = f"the scheduler makes room for it on {pod.nominated}"
            _sort_in(unit, reason, settings, units, held)
    with_devices = {shape for shape in {pod.shape for unit in units for pod in unit.pods} if asks_devices(shape)}
    return Demand(
        units=tuple(sorted(units, key=lambda unit: _order(unit, with_devices))),
        held=tuple(sorted(held, key=lambda pending_item: (pending_item.run or "", pending_item.pod or ""))),
        elastic=tuple(
            sorted(
                (gang for gang in snapshot.elastic if gang.priority >= settings.expendable_below),
                key=lambda gang: (-gang.priority, gang.since, gang.name),
            )
        ),
    )


def is_pending(pod: SeenPod) -> bool:
    """Whether it waits for a node. A DaemonSet's pod waits for its own and never for another."""
    body = pod.pod
    return body.node is None and pod.daemon is None and not body.is_finished and not body.is_terminating


def _zones_of_gangs(snapshot: ClusterSnapshot) -> dict[str, tuple[str, ...]]:
    """Zones in which partly running gangs have pods."""
    partly = {gang.name for gang in snapshot.gangs if gang.held}
    zones = {node.name: node.shape.zone for node in snapshot.nodes} if partly else {}
    running: dict[str, tuple[str, ...]] = {}
    for pod in snapshot.pods if partly else ():
        zone = zones.get(pod.pod.node or "")
        if pod.gang is not None and pod.gang in partly and zone is not None and not pod.pod.is_finished:
            running[pod.gang] = (*running.get(pod.gang, ()), zone)
    return running


def _unit_of_gang(gang: Gang, zones: tuple[str, ...]) -> PendingWorkload:
    return PendingWorkload(
        name=gang.name,
        pods=gang.pods,
        priority=gang.priority,
        created=gang.created,
        is_run=True,
        held=gang.held,
        is_suspended=gang.is_suspended,
        zones=zones,
    )


def _sort_in(
    unit: PendingWorkload,
    hold: str,
    settings: AutoscalerSettings,
    units: list[PendingWorkload],
    held: list[PendingItem],
) -> None:
    if unit.priority < settings.expendable_below:
        low = f"its priority {unit.priority} is below {settings.expendable_below}: machines are not bought for it"
        held.append(unit.waits(low))
    elif hold:
        held.append(unit.waits(hold))
    else:
        units.append(unit)


def _order(unit: PendingWorkload, with_devices: set[PodShape]) -> tuple[int, bool, bool, float, str, bool]:
    needs = any(pod.shape in with_devices for pod in unit.pods)
    return (-unit.priority, not needs, len(unit.pods) == 1, unit.created, unit.name, unit.is_run)


def asks_devices(shape: PodShape) -> bool:
    return any(is_scarce(name) for name, _ in shape.requests)
