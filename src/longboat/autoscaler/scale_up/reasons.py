"""Reasons for waiting, in words: what is on its way, and for each pool why it does not serve. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.snapshot import AutoscalerSettings
from longboat.autoscaler.purchase.offers import LIMITED, Fits, PoolOffer, machines_within, uses_of
from longboat.autoscaler.purchase.optimize import Optimizer
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup
from longboat.autoscaler.scale_up.demand import PendingWorkload
from longboat.autoscaler.scale_up.placement import by_shape
from longboat.core.resources import show_quantity
from longboat.core.times import format_time
from longboat.core.words import counted, listing
from longboat.fitting.model.pods import Pod, PodShape

MOST_NAMED = 3  # one line of reasons


class ReasonWriter:
    def __init__(
        self,
        fits: Fits,
        offers: Mapping[str, PoolOffer],
        limits: Sequence[int | None],
        settings: AutoscalerSettings,
        now: float,
    ) -> None:
        self.fits, self.offers, self.limits, self.settings, self.now = fits, offers, limits, settings, now
        self._promises: dict[tuple[tuple[str, int], ...], tuple[float | None, str]] = {}
        self._known: dict[tuple[tuple[PodShape, int], ...], str] = {}

    def promise(
        self, unit: PendingWorkload, machines: list[Machine], bought: Mapping[str, int]
    ) -> tuple[float | None, str]:
        """When it is expected to have its machines, and which these are."""
        if not machines:
            mark = tuple(sorted(bought.items()))
            if mark not in self._promises:
                self._promises[mark] = self._promise(unit, machines, bought)
            return self._promises[mark]
        return self._promise(unit, machines, bought)

    def _promise(
        self, unit: PendingWorkload, machines: list[Machine], bought: Mapping[str, int]
    ) -> tuple[float | None, str]:
        coming = [machine for machine in machines if machine.condition == "booting"]
        lifted = [machine for machine in machines if machine.cordon == "ours"]
        moments = [machine.expected for machine in coming if machine.expected is not None]
        moments += [self._asked(pool) + self.offers[pool].pool.boot_s for pool in bought]
        parts = []
        late = {pool: self.offers[pool].delay for pool in bought}
        if ordered := _counts(bought, [pool for pool in bought if late[pool] is None]):
            parts.append(f"new machines are ordered: {ordered}")
        for pool in sorted(bought):
            if delay := late[pool]:
                parts.append(f"new machines are ordered a little later: {_counts(bought, [pool])}: {delay.reason}")
        if coming:
            parts.append(f"machines on their way: {names_of([machine.name for machine in coming])}")
        if lifted:
            parts.append(f"our cordon is lifted on {names_of([machine.name for machine in lifted])}")
        if not parts:
            text = "it can be admitted" if unit.is_suspended else "the scheduler has only to place it"
            return None, f"there is room on {names_of([machine.name for machine in machines])}: {text}"
        expected = max(moments, default=self.now)
        return expected, f"{'; '.join(parts)}; expected by {format_time(expected)}"

    def _asked(self, pool: str) -> float:
        delay = self.offers[pool].delay
        return self.now if delay is None or delay.until is None else delay.until

    def refusal(self, unit: PendingWorkload) -> str:
        """Why nothing is bought for it."""
        mark = tuple((shape, len(pods)) for shape, pods in by_shape(unit.pods))
        text = self._known.get(mark)
        if text is None:
            text = self._known[mark] = self._refusal(unit)
        return text

    def _refusal(self, unit: PendingWorkload) -> str:
        if not self.offers:
            return "there are no pools"
        kinds = [alike for _, alike in by_shape(unit.pods)]
        never = next((alike[0] for alike in kinds if not self.fits.ever(alike[0])), None)
        if never is not None:
            which = f"no machine of any pool could ever take {self._which(unit, never)}"
            return f"{which}: " + "; ".join(
                f"{name}: {self.fits.why_never(never, offer)}" for name, offer in self.offers.items()
            )
        if unit.is_run and len(unit.pods) > 1 and (large := self._too_large(unit, kinds)):
            return large
        shut = [self._shut(name) for name in sorted({pool for alike in kinds for pool in self.fits.allowed(alike[0])})]
        whole = "the gang is started as a whole or not at all, and there are not enough machines for it: "
        rules = [
            pod.shape for alike in kinds for pod in alike[:1] if pod.shape.near or pod.shape.spread or pod.shape.apart
        ]
        alone = "nothing is bought: "
        if rules:
            kept = "keeps its rules about other pods (affinity, spreading)"
            alone = f"no machine that is there or that may be bought has room for it and {kept}: "
            whole = whole.replace("machines for it", f"machines with room for it where one {kept}")
        return (whole if unit.is_run and len(unit.pods) > 1 else alone) + "; ".join(shut)

    def _which(self, unit: PendingWorkload, pod: Pod) -> str:
        return f"its pod {pod.name}" if len(unit.pods) > 1 else "it"

    def _too_large(self, unit: PendingWorkload, kinds: Sequence[Sequence[Pod]]) -> str | None:
        """A gang that all pools together could not hold even if they were empty and no limit were used up."""
        limits = self.settings.limits
        empty = {name: _emptied(offer) for name, offer in self.offers.items()}
        stated = (limits.cpus, limits.memory, limits.gpus)
        budget = CapacityBudget(empty, stated)
        purchase = Optimizer([DemandGroup(alike, self.fits.allowed(alike[0])) for alike in kinds], budget).buy()
        if purchase.is_complete:
            return None
        free = Optimizer([DemandGroup(alike, self.fits.allowed(alike[0])) for alike in kinds], _unlimited(empty)).buy()
        wanted = ", ".join(f"{count} of {pool}" for pool, count in sorted(free.counts().items()))
        most = ", ".join(f"{pool} may have {self.offers[pool].pool.max}" for pool in sorted(free.counts()))
        said = [text for text in (self._stated(number, most) for number, most in enumerate(stated)) if text]
        asks = f"{counted(len(unit.pods), 'pod')} {'needs' if len(unit.pods) == 1 else 'need'} {wanted}"
        return f"refused, it is too large: {asks}; {'; '.join([most, *said])}"

    def _stated(self, number: int, most: int | None) -> str:
        return "" if most is None else f"the limit is {_show(number, most)}"

    def _shut(self, name: str) -> str:
        offer = self.offers[name]
        if offer.blocked and not offer.zones:
            return f"{name}: {offer.blocked[0].reason}"
        if not offer.room:
            return f"{name} is at its max of {offer.pool.max}"
        parts = []
        within = machines_within(offer.pool, self.limits)
        if within is not None and within < offer.room:
            parts.append(f"{self._tightest(offer)} {'allow' if within else 'allow no'} {_more(within)}")
        else:
            parts.append(f"{name} may have {_more(offer.room)} (max {offer.pool.max}), for those who come first")
        parts += [f"zone {window.zone}: {window.reason}" for window in offer.blocked if window.zone is not None]
        return ", ".join(parts) if name in parts[0] else f"{name}: {', '.join(parts)}"

    def _tightest(self, offer: PoolOffer) -> str:
        """The limit that leaves the fewest machines."""
        each = uses_of(offer.pool)
        counts = [
            (left // use, number)
            for number, (use, left) in enumerate(zip(each, self.limits))
            if left is not None and use
        ]
        _, number = min(counts)
        limits = self.settings.limits
        return f"the limits ({_show(number, (limits.cpus, limits.memory, limits.gpus)[number] or 0)})"


def _counts(bought: Mapping[str, int], pools: Sequence[str]) -> str:
    return ", ".join(f"{pool} ({counted(bought[pool], 'pod')})" for pool in sorted(pools))


def _show(number: int, amount: int) -> str:
    if LIMITED[number] == "memory":
        return f"{show_quantity(amount)} of memory"
    return counted(amount / 1000, "CPU") if LIMITED[number] == "cpus" else counted(amount, "GPU")


def _more(count: int) -> str:
    return counted(count, "more machine") if count else "more machines"


def _emptied(offer: PoolOffer) -> PoolOffer:
    import msgspec

    return msgspec.structs.replace(offer, room=offer.pool.max, size=0, zones=offer.all_zones, blocked=(), delay=None)


def _unlimited(offers: Mapping[str, PoolOffer]) -> CapacityBudget:
    budget = CapacityBudget(offers, (None, None, None))
    budget.room = dict.fromkeys(budget.room, 1 << 30)
    return budget


def names_of(names: Sequence[str]) -> str:
    return listing(sorted(names), MOST_NAMED)
