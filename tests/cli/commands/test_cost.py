"""`longboat cost --by pool`: its rows add up, and what is not known of one is not 0."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from longboat.cli.commands.clusters import cost
from longboat.cli.commands.clusters.cost import record_of
from longboat.cli.main import enter
from longboat.multicluster import ask
from longboat.multicluster.ask import NamedEngine
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


def test_a_place_that_does_not_answer_is_waited_for_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Costs first, then budgets and runs: of those that have answered alone."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        cluster = {"name": "silent", "cluster": {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}}
        context = {"name": "silent", "context": {"cluster": "silent"}}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        (home / "config.yaml").write_text("budgets: {team=vision: {gpu_hours: 7}}")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        monkeypatch.setattr(ask, "PATIENCE_S", 0.3)
        asked: list[list[str]] = []

        def spy(places: Sequence[NamedEngine], question: Callable[[NamedEngine], object]) -> list[object]:
            asked.append([each.name for each in places])
            return ask.ask_each(places, question)

        monkeypatch.setattr(cost, "ask_each", spy)
        assert enter(["cost", "--on", "local,silent"]) == 0
    words = capfd.readouterr().err
    assert "silent is not counted: no answer within" in words and "budget team=vision: 0.0 of 7" in words
    assert asked == [["local"], ["local"]]
