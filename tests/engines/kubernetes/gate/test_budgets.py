"""Budgets of a namespace at the gate, on a real API server, with nodes that run nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.gate import budgets
from longboat.engines.kubernetes.gate.budgets import budgets_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import JOB, NAMESPACE
from testbed import api
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.cluster
LONG_S = 120.0
A_MOMENT = 1e-7
"""GPU-hours; a run that has started has held more."""


def write(client: Client, value: object) -> None:
    text = None if value is None else json.dumps(value)
    client.patch(NAMESPACE, client.namespace, {"metadata": {"annotations": {names.BUDGETS: text}}})


def held(client: Client, run: str) -> list[str | None]:
    bodies = client.list(JOB, labels=f"{names.RUN}={run}").items
    return [body["metadata"]["labels"].get(names.HELD) for body in bodies]


def test_a_used_up_budget_holds_new_runs_back_until_there_is_more(
    bench: Bench, kwok_nodes: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kwok_nodes("1:gpus=4,cpu=16,memory=64Gi")
    monkeypatch.setattr(budgets, "FRESH_S", 0.0)
    chosen = {"kubernetes": {"image": "x", "storage": {"path": "/kept"}}}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps(chosen))
    bench.engine.close()
    bench.engine = bench.open()
    engine, client = bench.engine, bench.engine.client

    def submit(name: str, gpus: int = 1, **labels: str) -> str:
        return engine.submit(bench.submission(name=name, run="sleep 1", gpus=gpus, labels=labels)).name

    def phase_is(run: str, phase: str) -> None:
        api.wait_for(f"{run} is {phase}", lambda: engine.status(run).phase == phase, LONG_S, every_s=0.1)

    first = submit("first", team="vision")
    phase_is(first, "running")
    write(client, {"team=vision": {"gpu_hours": A_MOMENT, "hold": True}})
    (budget,) = budgets_of(client)
    assert budget.hold

    def is_held(run: str) -> bool:
        return engine.status(run).reason.startswith("held back by the budget team=vision: ")

    second = submit("second", team="vision")
    api.wait_for("the run is held back", lambda: is_held(second), LONG_S, every_s=0.2)
    assert "held back by the budget team=vision" in engine.explain(second).headline
    assert held(client, second) == ["budget"]
    other = submit("other", team="speech")
    phase_is(other, "running")
    assert held(client, other) == [None]

    write(client, None)
    phase_is(second, "running")
    assert held(client, second) == [None]

    write(client, ["no budgets"])
    with pytest.raises(ValueError, match=f"namespace {client.namespace}, annotation longboat.dev/budgets: "):
        budgets_of(client)
    phase_is(submit("third", team="vision"), "running")
