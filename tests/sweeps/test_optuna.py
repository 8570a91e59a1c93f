"""`method: optuna` with the real optuna: its samplers choose points of our spaces, and go on after a driver died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from longboat.core.errors import EngineError, JobError
from longboat.core.jobs import SAMPLERS, Metric, Range, Scalar, Sweep
from longboat.specs.params import is_in_space
from longboat.specs.read import read_job
from longboat.sweeps.decide import decide
from longboat.sweeps.optuna_points import check_installed
from longboat.sweeps.trials import SweepTrial
from tests.storage.realstores import Unavailable
from tests.sweeps.optuna_packages import optuna_packages
from tests.sweeps.test_tpe import learning_rate, quadratic

BOX = Range(low=-5.0, high=5.0)
MIXED: dict[str, tuple[Scalar, ...] | Range] = {
    "lr": Range(low=1e-5, high=1.0, is_log=True),
    "width": Range(low=16, high=1024, is_log=True, is_whole=True),
    "drop": Range(low=0.0, high=0.5, step=0.1),
    "layers": Range(low=1, high=9, is_whole=True, step=2.0),
    "opt": ("adam", "sgd", 1, True, 1.0),
}
WITHOUT_TORCH = [sampler for sampler in SAMPLERS if sampler != "gp"]


@pytest.fixture(scope="module", autouse=True)
def packages() -> Iterator[Path]:
    try:
        folder = optuna_packages()
    except Unavailable as error:
        pytest.skip(str(error))
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


def trial(number: int, params: dict[str, Scalar], loss: float | None) -> SweepTrial:
    phase = "running" if loss is None else "succeeded"
    metrics = {} if loss is None else {"loss": loss}
    moments = {"created": float(number), "ended": None if loss is None else number + 0.5}
    return SweepTrial(number=number, params=params, run=f"t{number}", phase=phase, metrics=metrics, **moments)


def chosen(sweep: Sweep, trials: list[SweepTrial], seed: str = "tune") -> list[dict[str, Scalar]]:
    return list(decide(sweep, seed, trials, Metric(name="loss") if trials else None).start)


@pytest.mark.parametrize("sampler", WITHOUT_TORCH)
def test_points_are_of_the_space_and_the_same_for_whoever_goes_on(sampler: str) -> None:
    sweep = Sweep(space=MIXED, method="optuna", sampler=sampler, trials=40, parallel=3)
    trials: list[SweepTrial] = []
    while len(trials) < 24:
        points = chosen(sweep, trials)
        assert points == chosen(sweep, trials) and len(points) == (3 if not trials else 2)
        assert all(is_in_space(sweep, point) for point in points), points
        for point in points:
            trials.append(trial(len(trials) + 1, point, None))
        under_way = trials[-1:]
        for each in trials[:-1]:
            loss = abs(float(each.params["lr"]) - 0.01) + float(each.params["drop"])
            trials[each.number - 1] = trial(each.number, each.params, loss)
        assert trials[-1:] == under_way
    seen = {json.dumps(each.params) for each in trials}
    assert len(seen) > 20, "hardly any point comes twice"


def test_gaussian_processes_where_torch_is_installed() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    sweep = Sweep(space={"x": BOX, "y": BOX}, method="optuna", sampler="gp", trials=20, parallel=1)
    trials: list[SweepTrial] = []
    while points := chosen(sweep, trials):
        trials.append(trial(len(trials) + 1, points[0], quadratic(points[0])))
    assert min(each.metrics["loss"] for each in trials) < 0.1


@pytest.mark.parametrize(("sampler", "function"), [("cmaes", quadratic), ("tpe", learning_rate)])
def test_samplers_learn_over_the_lives_of_many_drivers(sampler: str, function) -> None:
    """Every turn is that of a new driver. CMA-ES has a state of its own, which the trials' history gives back."""
    space = {"x": BOX, "y": BOX} if function is quadratic else {name: MIXED[name] for name in ("lr", "width")}
    space |= {} if function is quadratic else {"opt": ("adam", "sgd", "rms")}
    guided, chance = [], []
    for seed in ("one", "two", "three"):
        for method, outcomes in (("optuna", guided), ("random", chance)):
            sweep = Sweep(space=space, method=method, sampler=sampler, trials=60, parallel=1)
            trials: list[SweepTrial] = []
            while points := chosen(sweep, trials, seed):
                trials.append(trial(len(trials) + 1, points[0], function(points[0])))
            assert len(trials) == 60
            outcomes.append(min(each.metrics["loss"] for each in trials))
    assert median(guided) < 0.7 * median(chance), (guided, chance)


def test_failed_trials_and_those_without_the_metric_teach_nothing_and_stop_nothing() -> None:
    sweep = Sweep(space={"x": BOX}, method="optuna", sampler="cmaes", trials=30, parallel=1)
    trials = [
        SweepTrial(number=1, params={"x": 1.0}, run="t1", phase="failed", created=1.0, ended=2.0),
        SweepTrial(number=2, params={"x": 2.0}, run="t2", phase="succeeded", created=1.0, ended=2.0),
        SweepTrial(number=3, params={"x": 2.0}, run="t3", phase="pruned", created=1.0, ended=2.0),
        SweepTrial(number=4, params={"y": "forged"}, run="t4", phase="succeeded", created=1.0, ended=2.0),
    ]
    assert len(chosen(sweep, trials)) == 1


def test_what_a_sampler_needs_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(space={"x": BOX}, method="optuna", sampler="gp", trials=3)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineError, match="sampler gp needs torch") as refused:
        check_installed(sweep)
    assert "longboat[optuna]" in (refused.value.hint or "")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(EngineError, match="needs optuna"):
        check_installed(sweep)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"method": "tpe", "sampler": "gp", "trials": 3}, "method tpe has no sampler"),
        ({"sampler": "cmaes"}, "how many trials"),
        ({"method": "optuna", "trials": 2000}, "at most 1,000"),
        ({"sampler": "best", "trials": 3}, "sampler"),
    ],
)
def test_job_files_with_mistakes(fields: dict, words: str, tmp_path: Path) -> None:
    given = {"name": "j", "run": "x", "sweep": {"x": {"min": 0, "max": 1}, **fields}}
    with pytest.raises(JobError) as refused:
        read_job([], fields=given, environment={}, cwd=tmp_path)
    assert words in str(refused.value)


def test_from_the_command_line_to_the_best_trial(home: Path, tmp_path: Path, packages: Path) -> None:
    (tmp_path / "train.py").write_text("import sys, longboat\nlongboat.step(1, loss=abs(float(sys.argv[1]) - 0.3))\n")
    command = [sys.executable, "-m", "longboat", "sweep"]
    words = ["--param", "x=0.0..1.0", "--sampler", "cmaes", "--trials", "6", "-n", "tune", "-q"]
    job = ["--", "python", "train.py", "${sweep.x}"]
    without = subprocess.run([*command, *words, *job], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert without.returncode == 205 and "pip install 'longboat[optuna]'" in without.stderr, without.stderr
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(
        [*command, *words, *job], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    status = [*command, "status", "tune", "-o", "json"]
    seen = json.loads(subprocess.run(status, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert (seen["method"], len(seen["trials"])) == ("optuna", 6)
    assert seen["best"]["metric"] == min(each["metric"] for each in seen["trials"])
