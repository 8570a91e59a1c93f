"""`longboat cost --by pool`: its rows add up, and what is not known of one is not 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.cli.commands.clusters.cost import record_of
from longboat.cli.main import enter
from longboat.multicluster.costs import CostRow, all_pools


def test_this_machine_is_one_pool_and_all_its_runs_were_in_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGBOAT_GPUS", "a,b")
    monkeypatch.chdir(tmp_path)
    assert enter(["run", "-q", "--gpus", "2", "--", "true"]) == 0
    capfd.readouterr()
    assert enter(["cost", "--by", "pool", "-o", "json"]) == 0
    machine, whole = json.loads(capfd.readouterr().out)
    assert (machine.pop("name"), whole.pop("name")) == ("this machine", "(all)")
    assert machine.pop("runs") == whole.pop("runs") == 1
    assert machine == whole and whole["idle"] == pytest.approx(whole["paid"] - whole["held"])


def test_of_several_pools_only_the_sum_has_runs() -> None:
    pools = [CostRow(name=name, on="lab", paid=5.0) for name in ("a", "b")]
    rows = all_pools(pools, [CostRow(name="r", on="lab", runs=1, held=3.0)], "lab")
    first, _, whole = (record_of(row, rows, "pool") for row in rows)
    assert first["held"] is None and first["runs"] is None and first["paid"] == 5.0
    assert (whole["held"], whole["paid"], whole["idle"]) == (3.0, 10.0, 7.0)
    assert record_of(rows[0], rows, "run")["held"] == 0.0
