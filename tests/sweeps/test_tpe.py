"""The estimator finds better points than chance, on functions with known minima."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

import pytest

from longboat.core.jobs import Range, Scalar, Sweep
from longboat.specs.params import is_in_space
from longboat.sweeps.space import Params, generator, random_point
from longboat.sweeps.tpe import MOST_BAD, MOST_GOOD, STARTUP, Estimator, Observation

BOX = Range(low=-5.0, high=5.0)


def quadratic(point: Params) -> float:
    return (float(point["x"]) - 2.0) ** 2 + (float(point["y"]) + 1.0) ** 2


def rosenbrock(point: Params) -> float:
    x, y = float(point["x"]), float(point["y"])
    return (1.0 - x) ** 2 + 100.0 * (y - x * x) ** 2


def learning_rate(point: Params) -> float:
    """A loss as of trainings: best at lr 3e-3, width about 200, and one optimiser better than the others."""
    lr, width = math.log10(float(point["lr"])), math.log2(float(point["width"]))
    return (lr + 2.5) ** 2 + 0.1 * (width - 7.6) ** 2 + {"adam": 0.0, "sgd": 0.4, "rms": 0.8}[str(point["opt"])]


def ackley(point: Params) -> float:
    x, y = float(point["x"]), float(point["y"])
    near = -20.0 * math.exp(-0.2 * math.sqrt(0.5 * (x * x + y * y)))
    return near - math.exp(0.5 * (math.cos(2 * math.pi * x) + math.cos(2 * math.pi * y))) + math.e + 20.0


PLANE = Sweep(space={"x": BOX, "y": BOX}, method="tpe", trials=60)
TRAINING = Sweep(
    space={
        "lr": Range(low=1e-5, high=1.0, is_log=True),
        "width": Range(low=16, high=1024, is_log=True, is_whole=True),
        "opt": ("adam", "sgd", "rms"),
    },
    method="tpe",
    trials=60,
)
FUNCTIONS: list[tuple[Callable[[Params], float], Sweep]] = [
    (quadratic, PLANE),
    (rosenbrock, PLANE),
    (ackley, PLANE),
    (learning_rate, TRAINING),
]


def best_of(function: Callable[[Params], float], sweep: Sweep, seed: str, *, is_tpe: bool) -> float:
    observed: list[Observation] = []
    for number in range(1, 61):
        random = generator(seed, number)
        estimator = Estimator(sweep, observed, ())
        point: dict[str, Scalar] = estimator.suggest(random) if is_tpe else random_point(sweep, random)
        assert is_in_space(sweep, point)
        observed.append((point, function(point)))
    return min(loss for _, loss in observed)


@pytest.mark.parametrize(("function", "sweep"), FUNCTIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_better_than_random_search(function: Callable[[Params], float], sweep: Sweep) -> None:
    seeds = [f"seed-{number}" for number in range(9)]
    guided = [best_of(function, sweep, seed, is_tpe=True) for seed in seeds]
    chance = [best_of(function, sweep, seed, is_tpe=False) for seed in seeds]
    assert median(guided) < 0.7 * median(chance), (median(guided), median(chance))


def best_of_optuna(function: Callable[[Params], float], sweep: Sweep, seed: int) -> float:
    import optuna

    def objective(trial: optuna.Trial) -> float:
        point: dict[str, Scalar] = {}
        for name, values in sweep.space.items():
            if not isinstance(values, Range):
                point[name] = trial.suggest_categorical(name, list(values))
            elif values.is_whole:
                point[name] = trial.suggest_int(name, int(values.low), int(values.high), log=values.is_log)
            else:
                point[name] = trial.suggest_float(name, values.low, values.high, log=values.is_log)
        return function(point)

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=60)
    return float(study.best_value)


@pytest.mark.soak
@pytest.mark.parametrize(("function", "sweep"), FUNCTIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_most_of_the_way_from_random_search_to_optuna(function: Callable[[Params], float], sweep: Sweep) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install optuna")
    ours = median(best_of(function, sweep, f"seed-{number}", is_tpe=True) for number in range(25))
    chance = median(best_of(function, sweep, f"seed-{number}", is_tpe=False) for number in range(25))
    theirs = median(best_of_optuna(function, sweep, number) for number in range(25))
    assert chance - ours > 0.8 * (chance - theirs), (ours, theirs, chance)


def test_the_first_points_are_those_of_random_search() -> None:
    random = generator("s", 3)
    estimator = Estimator(PLANE, [({"x": 0.0, "y": 0.0}, 1.0)] * (STARTUP - 1), ())
    assert estimator.suggest(random) == random_point(PLANE, generator("s", 3))


def test_points_at_a_bound_and_equal_losses_are_no_trouble() -> None:
    edge = [({"x": 5.0, "y": -5.0}, 1.0)] * 40
    for number in range(50):
        assert is_in_space(PLANE, Estimator(PLANE, edge, [{"x": 5.0, "y": 5.0}]).suggest(generator("s", number)))


def test_of_thousands_of_trials_the_best_and_the_newest_count() -> None:
    points = [random_point(PLANE, generator("p", number)) for number in range(3000)]
    best = [(point, -1.0) for point in points[:MOST_GOOD]]
    old, new = (
        [(point, float(place)) for place, point in enumerate(part)] for part in (points[25:], points[:MOST_BAD])
    )
    for number in range(5):
        few, many = (Estimator(PLANE, [*best, *rest, *new], ()) for rest in ((), old))
        assert many.suggest(generator("s", number)) == few.suggest(generator("s", number))
