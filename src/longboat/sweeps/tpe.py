"""Tree-structured Parzen estimator: the next point of a space, from what earlier trials have shown. Pure.

Trials are split into good and bad ones. For each parameter two densities are made of their values, candidates are drawn
from that of the good ones, and the candidate is taken whose ratio of densities is highest. Parameters are looked at one
by one, as if they did not depend on each other.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import NormalDist
from typing import NamedTuple, cast

from longboat.core.jobs import Range, Scalar, Sweep
from longboat.sweeps.space import Params, Values, from_unit, random_point, to_unit

STARTUP = 10
"""Trials with a result before densities say more than chance."""
CANDIDATES = 24
"""Points that are compared for each parameter; more follow the density too closely and explore less."""
MOST_GOOD = 25
"""Good trials that are looked at: with hundreds of trials the best quarter would be the whole neighbourhood."""
MOST_BAD = 275
"""Bad trials that are looked at, the newest: hundreds tell where not to go as well as thousands, in a tenth of the
time, and one process decides for the sweeps of a whole cluster."""
MIDDLE = 0.5  # of the space, where the bell of the prior stands
PRIOR = 1.0
"""Weight of "anywhere in the space" beside each trial's weight of 1."""

Observation = tuple[Params, float]
"""A point and its loss: less is better."""


class Estimator:
    """What trials have shown, for all points that are chosen in one turn. Trials that still run count as bad, so that
    those beside them go elsewhere. `observed`: in the order of the trials."""

    def __init__(self, sweep: Sweep, observed: Sequence[Observation], running: Sequence[Params]) -> None:
        self.sweep, self.is_informed = sweep, len(observed) >= STARTUP
        ranked = sorted(range(len(observed)), key=lambda index: observed[index][1])
        split = min(math.ceil(0.1 * len(ranked)), MOST_GOOD)
        good = [observed[index][0] for index in ranked[:split]]
        self._bad = [observed[index][0] for index in sorted(ranked[split:])] + list(running)
        if self.is_informed:
            self._good = {name: _seen(values, [point[name] for point in good]) for name, values in sweep.space.items()}

    def note_running(self, point: Params) -> None:
        """A point that was chosen just now."""
        self._bad.append(point)

    def suggest(self, random: Random) -> dict[str, Scalar]:
        """The next point."""
        if not self.is_informed:
            return random_point(self.sweep, random)
        bad = self._bad[-MOST_BAD:]
        return {
            name: _best(values, self._good[name], _seen(values, [point[name] for point in bad]), random)
            for name, values in self.sweep.space.items()
        }


class Bell(NamedTuple):
    """A normal distribution cut off at 0 and 1: height * exp(curve * (x - mean)^2)."""

    height: float
    curve: float
    mean: float
    width: float


Seen = list[Bell] | list[float]
"""How likely values are: of a range bells between 0 and 1, the first is the prior; of a list the weight of each."""


def _seen(values: Values, points: Sequence[Scalar]) -> Seen:
    return _density(values, points) if isinstance(values, Range) else _weights(values, points)


def _best(values: Values, good: Seen, bad: Seen, random: Random) -> Scalar:
    if isinstance(values, Range):
        return _best_of_range(values, cast(list[Bell], good), cast(list[Bell], bad), random)
    candidates = random.choices(range(len(values)), weights=cast(list[float], good), k=CANDIDATES)
    return values[max(candidates, key=lambda index: cast(float, good[index]) / cast(float, bad[index]))]


def _weights(values: Sequence[Scalar], points: Sequence[Scalar]) -> list[float]:
    share = PRIOR / len(values)
    counts = Counter(points)
    return [(share + counts[value]) / (PRIOR + len(points)) for value in values]


def _best_of_range(values: Range, better: list[Bell], worse: list[Bell], random: Random) -> Scalar:
    candidates = [_draw(better, random) for _ in range(CANDIDATES)]
    share = max(candidates, key=lambda point: math.log(_height(better, point)) - math.log(_height(worse, point)))
    return from_unit(values, share)


def _density(values: Range, seen: Sequence[Scalar]) -> list[Bell]:
    """A bell at each trial, as wide as the gap to its farther neighbour, and a wide one for the whole space."""
    points = [to_unit(values, value) for value in seen]
    around = sorted([*points, MIDDLE])
    narrowest = 1.0 / min(100, len(points) + 2)
    bells = [_bell(MIDDLE, 1.0)]
    for point in points:
        index = bisect.bisect_left(around, point)
        gap = max(point - around[max(index - 1, 0)], around[min(index + 1, len(points))] - point)
        bells.append(_bell(point, min(max(gap, narrowest), 1.0)))
    return bells


def _bell(mean: float, width: float) -> Bell:
    normal = NormalDist(mean, width)
    inside = normal.cdf(1.0) - normal.cdf(0.0)
    return Bell(height=normal.pdf(mean) / inside, curve=-0.5 / width**2, mean=mean, width=width)


def _draw(density: list[Bell], random: Random) -> float:
    weights = [PRIOR, *[1.0] * (len(density) - 1)]
    chosen = random.choices(density, weights=weights)[0]
    bell = NormalDist(chosen.mean, chosen.width)
    below = bell.cdf(0.0)
    share = below + random.random() * (bell.cdf(1.0) - below)
    return min(max(bell.inv_cdf(min(max(share, 1e-12), 1 - 1e-12)), 0.0), 1.0)


def _height(density: list[Bell], point: float) -> float:
    exp = math.exp
    heights = [height * exp(curve * (point - mean) ** 2) for height, curve, mean, _ in density]
    return (sum(heights) + (PRIOR - 1.0) * heights[0]) / (PRIOR + len(density) - 1)
