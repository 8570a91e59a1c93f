"""Offers of the pools: room up to the maximum, zones not in backoff, limits of all together. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from longboat.autoscaler.model.backoff import BackoffWindow, closed
from longboat.autoscaler.model.daemonsets import daemon_pods
from longboat.autoscaler.model.machines import Machine, counts_by_zone, template
from longboat.autoscaler.model.snapshot import (
    DEVICES,
    AutoscalerSettings,
    Daemon,
    Pool,
    ProviderFailure,
    ResourceLimits,
)
from longboat.core.jobs import Value
from longboat.fitting.eligibility import admits
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import CPU, MEMORY, is_gpu
from longboat.fitting.packing import take_each
from longboat.fitting.predicates import amount_refusals, placing_refusals

LIMITED = ("cpus", "memory", "gpus")
Zone = str | None


class PoolOffer(Value, frozen=True):
    """What a pool can still provide in this turn."""

    pool: Pool
    room: int  # machines up to its maximum
    size: int  # machines it has, booting and ordered ones too
    zones: tuple[Zone, ...]  # where it may be asked now; (None,) for a pool without zones
    blocked: tuple[BackoffWindow, ...] = ()  # where it may not be asked now
    delay: BackoffWindow | None = None  # it is asked a little later
    by_zone: dict[str, int] = {}
    daemons: tuple[Daemon, ...] = ()

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def has_gpus(self) -> bool:
        return uses_of(self.pool)[2] > 0

    @property
    def all_zones(self) -> tuple[Zone, ...]:
        return self.pool.zones or (None,)

    def machine(self, zone: Zone, name: str) -> Fleet:
        """A fleet of one new machine."""
        shape = template(self.pool, zone, name)
        return Fleet([shape], daemon_pods(self.daemons, name, set()))


def uses_of(pool: Pool, shape: NodeShape | None = None) -> tuple[int, int, int]:
    """CPUs, memory and GPUs of one machine of the pool (or of this node of it), as limits count them."""
    shape = shape or pool.machine
    own = pool.gpu_resource
    gpus = [(name, count) for name, count in shape.allocatable if name == own or is_gpu(name)]
    plugged = sum(count for name, count in gpus if not name.startswith(DEVICES))
    # The same device may be of several classes, and be offered by a device plugin besides: it is one.
    claimable = max((count for name, count in gpus if name.startswith(DEVICES)), default=0)
    return shape.has(CPU), shape.has(MEMORY), plugged or claimable


def offers_of(
    pools: Sequence[Pool],
    machines: list[Machine],
    failures: Sequence[ProviderFailure],
    daemons: dict[str, tuple[Daemon, ...]],
    settings: AutoscalerSettings,
    now: float,
) -> dict[str, PoolOffer]:
    sizes: dict[str, int] = {}
    for machine in machines:
        if machine.pool is not None:
            sizes[machine.pool.name] = sizes.get(machine.pool.name, 0) + 1
    offers = {}
    for pool in sorted(pools, key=lambda pool: pool.name):
        shut_now = closed(pool, failures, settings, now)
        blocked = tuple(backoff_window for backoff_window in shut_now if not backoff_window.is_delay)
        shut = {closed.zone for closed in blocked}
        zones = tuple(zone for zone in pool.zones or (None,) if zone not in shut and None not in shut)
        offers[pool.name] = PoolOffer(
            pool=pool,
            room=max(pool.max - sizes.get(pool.name, 0), 0),
            size=sizes.get(pool.name, 0),
            zones=zones,
            blocked=blocked,
            delay=next((window for window in shut_now if window.is_delay), None),
            by_zone=counts_by_zone(machines, pool),
            daemons=daemons.get(pool.name, ()),
        )
    return offers


def limits_left(limits: ResourceLimits, machines: list[Machine]) -> tuple[int | None, ...]:
    """What the limits still allow; every machine of a pool counts, also one that failed and is not gone yet."""
    stated = (limits.cpus, limits.memory, limits.gpus)
    if stated == (None, None, None):
        return stated
    used = [0, 0, 0]
    for machine in machines:
        if machine.pool is not None:
            of_node = uses_of(machine.pool, machine.node.shape) if machine.node is not None else (0, 0, 0)
            for number, pair in enumerate(zip(uses_of(machine.pool), of_node)):
                used[number] += max(pair)
    return tuple(None if most is None else max(most - mine, 0) for most, mine in zip(stated, used))


def machines_within(pool: Pool, left: Sequence[int | None]) -> int | None:
    """How many machines of this pool the limits leave; None: as many as you like."""
    counts = [most // each for each, most in zip(uses_of(pool), left) if most is not None and each]
    return min(counts, default=None)


class Fits:
    """Which pools (and zones) could take a pod, asked once for every shape."""

    def __init__(self, offers: dict[str, PoolOffer]) -> None:
        self.offers = offers
        self._gpus = {offer.pool.gpu_resource for offer in offers.values()}
        self._ever: dict[PodShape, dict[str, tuple[Zone, ...]]] = {}
        self._allowed: dict[PodShape, dict[str, tuple[Zone, ...]]] = {}
        self._now: dict[PodShape, dict[str, tuple[Zone, ...]]] = {}

    def ever(self, pod: Pod) -> dict[str, tuple[Zone, ...]]:
        """Pools whose empty machine would take the pod, with the zones; whether they have room is not asked."""
        zones_by_pool = self._ever.get(pod.shape)
        if zones_by_pool is None:
            every = {name: self._zones(offer, pod) for name, offer in self.offers.items()}
            zones_by_pool = self._ever[pod.shape] = {name: zones for name, zones in every.items() if zones}
        return zones_by_pool

    def allowed(self, pod: Pod) -> dict[str, tuple[Zone, ...]]:
        """As `ever`, less pools with GPUs for a pod that needs none and that another pool could ever take."""
        zones_by_pool = self._allowed.get(pod.shape)
        if zones_by_pool is None:
            zones_by_pool = self.ever(pod)
            if not any(is_gpu(name) or name in self._gpus for name, _ in pod.shape.requests):
                plain = {name: zones for name, zones in zones_by_pool.items() if not self.offers[name].has_gpus}
                zones_by_pool = plain or zones_by_pool
            self._allowed[pod.shape] = zones_by_pool
        return zones_by_pool

    def now(self, pod: Pod) -> dict[str, tuple[Zone, ...]]:
        """As `allowed`, where the pool may be asked now and has room."""
        zones_by_pool = self._now.get(pod.shape)
        if zones_by_pool is None:
            zones_by_pool = self._now[pod.shape] = {}
            for name, zones in self.allowed(pod).items():
                offer = self.offers[name]
                open_zones = tuple(zone for zone in zones if zone in offer.zones)
                if open_zones and offer.room:
                    zones_by_pool[name] = open_zones
        return zones_by_pool

    def _zones(self, offer: PoolOffer, pod: Pod) -> tuple[Zone, ...]:
        if offer.pool.max <= 0:
            return ()
        placing = pod.shape.placing
        zones = [
            zone for zone in offer.all_zones if admits(placing, template(offer.pool, zone, offer.pool.machine.name))
        ]
        if not zones or not self._fits_amounts(offer, pod, zones[0]):
            return ()
        return tuple(zones)

    def _fits_amounts(self, offer: PoolOffer, pod: Pod, zone: Zone) -> bool:
        fleet = offer.machine(zone, "new")
        return fleet.states["new"].fits(pod.shape) > 0

    def why_never(self, pod: Pod, offer: PoolOffer) -> str:
        """Why an empty machine of this pool would not take the pod."""
        if offer.pool.max <= 0:
            return "its max is 0"
        reasons: list[str] = []
        for zone in offer.all_zones:
            fleet = offer.machine(zone, "new")
            state = fleet.states["new"]
            besides = " besides its DaemonSets" if offer.daemons else ""
            refusals = placing_refusals(pod.shape.placing, state.shape)
            refusals = refusals or [f"{text}{besides}" for text in amount_refusals(pod, state)]
            reasons += [text for text in refusals if text not in reasons]
        return "; ".join(reasons[:3]) or "it does not fit"


def most_on_one(fleet: Fleet, pods: Sequence[Pod]) -> int:
    """How many of these alike pods one machine takes; the fleet keeps them."""
    (state,) = fleet.states.values()
    shape = pods[0].shape
    if shape.apart or not fleet.topology.is_quiet:
        tried = list(pods[: state.fits(shape)])
        return len(tried) - len(take_each(tried, fleet))
    count = min(state.fits(shape), len(pods))
    for pod in pods[:count]:
        fleet.add(pod, state)
    return count
