"""Points of a search space."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.jobs import Range, Sweep
from longboat.specs.fields.sweeps import grid_size
from longboat.specs.params import is_in_space
from longboat.sweeps.space import from_unit, generator, grid_point, random_point, to_unit

SHARES = st.floats(0, 1, exclude_max=True)
MIXED = Sweep(
    space={
        "lr": Range(low=1e-4, high=1e-1, is_log=True),
        "width": Range(low=16, high=512, is_whole=True, is_log=True),
        "drop": Range(low=0.0, high=0.5, step=0.1),
        "opt": ("adam", "sgd", 3, True),
    },
    method="random",
    trials=1,
)


def test_a_grid_has_every_point_once_and_the_last_parameter_changes_first() -> None:
    sweep = Sweep(space={"a": (1, 2), "b": ("x", "y", "z"), "c": Range(low=0.1, high=0.3, step=0.1)})
    points = [grid_point(sweep, number) for number in range(1, grid_size(sweep) + 1)]
    assert [tuple(point.values()) for point in points if point] == list(product((1, 2), "xyz", (0.1, 0.2, 0.3)))
    assert grid_point(sweep, grid_size(sweep) + 1) is None
    assert list(points[0] or {}) == ["a", "b", "c"]


def test_steps_of_whole_numbers_are_whole() -> None:
    sweep = Sweep(space={"n": Range(low=1, high=10, is_whole=True, step=4)})
    assert [grid_point(sweep, number) for number in (1, 2, 3, 4)] == [{"n": 1}, {"n": 5}, {"n": 9}, None]


def test_a_tiny_step_makes_no_more_points_than_are_asked_for() -> None:
    """10^14 points, as long to list as the machine has memory."""
    tiny = Range(low=0.0, high=1.0, step=1e-14)
    sweep = Sweep(space={"a": ("x", "y"), "b": tiny}, trials=5)
    assert grid_size(sweep) == 2 * (10**14 + 1)
    assert [grid_point(sweep, number) for number in (1, 2, 10**14 + 2)] == [
        {"a": "x", "b": 0.0},
        {"a": "x", "b": 1e-14},
        {"a": "y", "b": 0.0},
    ]
    assert from_unit(tiny, 0.5) == 0.5
    assert is_in_space(sweep, {"a": "y", "b": from_unit(tiny, 1 - 2**-53)})


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 1000), SHARES)
def test_points_of_a_range_with_a_step_lie_in_it(low: float, width: float, count: int, share: float) -> None:
    values = Range(low=low, high=low + width, step=width / count)
    assert is_in_space(Sweep(space={"x": values}), {"x": from_unit(values, share)})


@given(st.integers(1, 10_000), st.text(max_size=5))
def test_random_points_are_of_the_space_and_the_same_again(number: int, seed: str) -> None:
    point = random_point(MIXED, generator(seed, number))
    assert is_in_space(MIXED, point)
    assert point == random_point(MIXED, generator(seed, number))


def test_log_ranges_give_each_order_of_magnitude_its_share() -> None:
    values = [float(random_point(MIXED, generator("s", number))["lr"]) for number in range(3000)]
    shares = [sum(10.0**low <= value < 10.0 ** (low + 1) for value in values) / 3000 for low in (-4, -3, -2)]
    assert all(0.28 < share < 0.39 for share in shares)


def test_whole_numbers_at_the_bounds_are_as_likely_as_others() -> None:
    dice = Range(low=1, high=6, is_whole=True)
    counts = [0] * 7
    for share in range(6000):
        counts[int(from_unit(dice, share / 6000))] += 1
    assert all(abs(count - 1000) <= 2 for count in counts[1:])


@given(SHARES)
def test_shares_and_values_of_a_range(share: float) -> None:
    for name in ("lr", "width"):
        values = MIXED.space[name]
        assert isinstance(values, Range)
        value = from_unit(values, share)
        assert values.low <= float(value) <= values.high
        assert abs(to_unit(values, value) - share) < 0.02


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"lr": 1.0, "width": 16, "drop": 0.1, "opt": "adam"},
        {"lr": 0.01, "width": 16.5, "drop": 0.1, "opt": "adam"},
        {"lr": 0.01, "width": 16, "drop": 0.1, "opt": "$(rm -r ~)"},
        {"lr": "0.01; reboot", "width": 16, "drop": 0.1, "opt": "adam"},
        {"lr": 0.01, "width": 16, "drop": 0.1, "opt": "adam", "more": 1},
    ],
)
def test_other_points_are_not_of_the_space(params: dict) -> None:
    assert not is_in_space(MIXED, params)
