"""The purchase for a whole demand, compared with the best of all possible purchases on small cases."""

from __future__ import annotations

import itertools
import random
from functools import cache

import pytest

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.plan import ScalingPlan
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot, Pool, ResourceLimits, SeenPod
from tests.autoscaler.world import Work, pool

SIZES = {"s": 1, "m": 4, "l": 8}


def plan_for(gpus: list[int], pools: tuple[Pool, ...], chosen: AutoscalerSettings | None = None) -> ScalingPlan:
    pods = tuple(SeenPod(pod=Work(name=f"p{number}", gpus=each).pods[0]) for number, each in enumerate(gpus))
    return decide(ClusterSnapshot(pods=pods, pools=pools), chosen or AutoscalerSettings(), 1e6)


def cost(plan: ScalingPlan, pools: tuple[Pool, ...]) -> float:
    prices = {each.name: each.price for each in pools}
    return sum((one.count or 0) * prices[one.pool or ""] for one in plan.actions)


@cache
def fits(gpus: tuple[int, ...], free: tuple[int, ...]) -> bool:
    """Whether pods (largest first) fit into machines with so many GPUs free: every way is tried."""
    if not gpus:
        return True
    tried = set()
    for number, room in enumerate(free):
        if room >= gpus[0] and room not in tried:
            tried.add(room)
            if fits(gpus[1:], tuple(sorted((*free[:number], *free[number + 1 :], room - gpus[0])))):
                return True
    return False


def best(gpus: list[int], pools: tuple[Pool, ...]) -> float:
    largest_first = tuple(sorted(gpus, reverse=True))
    found = float("inf")
    ranges = [range(min(each.max, len(gpus)) + 1) for each in pools]
    for counts in itertools.product(*ranges):
        price = sum(count * each.price for count, each in zip(counts, pools))
        if price < found:
            free = [each.machine.devices for count, each in zip(counts, pools) for _ in range(count)]
            if fits(largest_first, tuple(sorted(free))):
                found = price
    return found


def cases() -> list[tuple[list[int], tuple[Pool, ...]]]:
    mixed = random.Random(7)
    found = []
    for _ in range(120):
        prices = {
            "s": mixed.choice((3.0, 4.0, 5.0)),
            "m": mixed.choice((9.0, 12.0, 16.0)),
            "l": mixed.choice((16.0, 24.0, 30.0)),
        }
        names = mixed.sample("sml", mixed.choice((1, 2, 3)))
        names = names if "l" in names else [*names, "l"]
        pools = tuple(pool(name, SIZES[name], prices[name], max=6) for name in sorted(names))
        found.append(([mixed.choice((1, 1, 2, 3, 4, 5, 8)) for _ in range(mixed.randint(1, 7))], pools))
    return found


def test_purchases_are_hardly_ever_dearer_than_the_best() -> None:
    ratios = []
    for gpus, pools in cases():
        found = plan_for(gpus, pools)
        assert not [one for one in found.waiting if one.expected is None]
        ratios.append(cost(found, pools) / best(gpus, pools))
    assert min(ratios) >= 1 - 1e-9, "cheaper than the best: some pod has no machine"
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) >= 0.98 * len(ratios)
    assert max(ratios) <= 1.1


@pytest.mark.parametrize(
    ("gpus", "count"), [([5] * 4 + [3] * 4, 4), ([1] * 9, 2), ([8] * 5, 5), ([4, 4, 4], 2), ([6, 2, 6, 2], 2)]
)
def test_machines_are_filled(gpus: list[int], count: int) -> None:
    (action,) = plan_for(gpus, (pool("l", 8, 10.0, max=20),)).actions
    assert action.count == count


def test_limits_hold_for_thousands_of_pods() -> None:
    found = plan_for([1] * 3000, (pool("l", 8, 10.0, max=1000),), AutoscalerSettings(limits=ResourceLimits(gpus=800)))
    (action,) = found.actions
    assert action.count == 100
    assert sum(one.expected is not None for one in found.waiting) == 800
