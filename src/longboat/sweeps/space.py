"""Search space of a sweep: grids, random points, and points as numbers between 0 and 1. Pure.

The random points of a sweep follow from its seed and the number of the trial: whoever goes on with a sweep draws the
same ones.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache
from random import Random

from longboat.core.jobs import Range, Scalar, Sweep

Params = Mapping[str, Scalar]
Values = tuple[Scalar, ...] | Range


def grid_point(sweep: Sweep, number: int) -> dict[str, Scalar] | None:
    """The point of trial `number`, counted from 1; the last parameter changes first. None behind the last point."""
    rest = number - 1
    point: dict[str, Scalar] = {}
    for name, values in reversed(sweep.space.items()):
        rest, index = divmod(rest, _size(values))
        point[name] = value_at(values, index)
    return {name: point[name] for name in sweep.space} if rest == 0 else None


def generator(seed: str, number: int) -> Random:
    """Random numbers of one trial."""
    return Random(hashlib.sha256(f"{seed}/{number}".encode()).digest())


def random_point(sweep: Sweep, random: Random) -> dict[str, Scalar]:
    return {name: from_unit(values, random.random()) for name, values in sweep.space.items()}


def is_finite(sweep: Sweep) -> bool:
    """Whether the space is so many points: lists, and ranges with a step."""
    return all(not isinstance(values, Range) or values.step is not None for values in sweep.space.values())


def shuffled_point(sweep: Sweep, seed: str, number: int) -> dict[str, Scalar] | None:
    """The point of trial `number` of a finite space: each point comes once, in an order that follows from the seed."""
    size = math.prod(_size(values) for values in sweep.space.values())
    if number > size:
        return None
    return grid_point(sweep, _shuffled(seed, size, min(size, max(number, sweep.trials or 0)))[number - 1] + 1)


@lru_cache(maxsize=8)  # of the sweeps that are driven at once; each trial asks for one more of the same
def _shuffled(seed: str, size: int, count: int) -> tuple[int, ...]:
    """The first numbers of a shuffle of so many (Fisher-Yates); the others are not made, as there may be too many."""
    random = Random(hashlib.sha256(f"{seed}/order".encode()).digest())
    moved: dict[int, int] = {}
    order = []
    for index in range(count):
        other = index + int(random.random() * (size - index))
        order.append(moved.get(other, other))
        moved[other] = moved.get(index, index)
    return tuple(order)


def from_unit(values: Values, share: float) -> Scalar:
    """The value at a share between 0 and 1 of a list or a range."""
    if not isinstance(values, Range) or values.step is not None:
        size = _size(values)
        return value_at(values, min(int(share * size), size - 1))
    low, high = values.low, values.high
    if values.is_whole:  # each whole number has the same share, those at the bounds too
        low, high = low - 0.5, high + 0.5
    if values.is_log:
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        value = low + share * (high - low)
    value = min(max(value, values.low), values.high)
    return min(max(round(value), int(values.low)), int(values.high)) if values.is_whole else value


def to_unit(values: Range, value: Scalar) -> float:
    """Where a value of a range lies between 0 and 1."""
    number = float(value)
    if values.is_log:
        return (math.log(number) - math.log(values.low)) / (math.log(values.high) - math.log(values.low))
    return (number - values.low) / (values.high - values.low)


def _size(values: Values) -> int:
    return values.size if isinstance(values, Range) else len(values)


def value_at(values: Values, index: int) -> Scalar:
    """One value of a list or of a range with a step. The others are not made: a small step has more than fit."""
    if not isinstance(values, Range):
        return values[index]
    step = values.step or 1.0
    if values.is_whole:
        return min(int(values.low) + index * int(step), int(values.high))
    digits = 12 - math.floor(math.log10(max(abs(values.low), abs(values.high))))  # 0.1 + 2 * 0.1 reads 0.3
    value = round(values.low + index * step, max(digits, 2 - math.floor(math.log10(step))))
    return min(max(value, values.low), values.high)
