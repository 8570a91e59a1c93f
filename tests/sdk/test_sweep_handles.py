"""Sweeps from Python, on this machine, with real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import longboat
from longboat.core.errors import NotFound, UsageError
from longboat.core.runs import PruneQuery
from longboat.engines.shared.home import Home
from longboat.sdk.engines import engine
from longboat.sdk.sweeps import prune_sweeps


def test_a_sweep_from_python_and_its_end(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to sweep"):
        longboat.sweep(run="true", engine="local", base=tmp_path)
    given = {"name": "tune", "base": tmp_path, "engine": "local", "sweep": {"x": [1, 2]}}
    sweep = longboat.sweep(run="test ${sweep.x} = $LONGBOAT_PARAM_X", **given)  # type: ignore[arg-type]
    report = sweep.wait(timeout_s=120)
    assert [(trial.params, trial.phase) for trial in report.trials] == [({"x": x}, "succeeded") for x in (1, 2)]
    assert longboat.sweep(run="test ${sweep.x} = $LONGBOAT_PARAM_X", **given).name == "tune"  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no trial of tune"):
        sweep.best()
    place, later = engine("local"), PruneQuery(ended_before=1e12)
    assert not list(prune_sweeps(Home(), place, PruneQuery(ended_before=1.0)))
    assert not list(prune_sweeps(Home(), place, PruneQuery(ended_before=1e12, phases=("failed",))))
    assert [item.name for item in prune_sweeps(Home(), place, later)] == ["tune"]
    assert not list((home / "sweeps").iterdir()) and not place.list()
    with pytest.raises(NotFound):
        sweep.status()
