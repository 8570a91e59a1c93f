"""Figures of runs as Prometheus gets them: those that were told lately, numbers only."""

from __future__ import annotations

import gc

import pytest

from longboat.core.runs import RankStatus, RankUsage, RunStatus
from longboat.engines.kubernetes.observe import pace_gauges
from longboat.engines.kubernetes.observe.pace_gauges import PaceGauges
from longboat.metrics.prometheus import families


def running(name: str, **fields: object) -> RunStatus:
    usage = RankUsage(cpu=1.5, memory=1e9, gpu=40.0)
    rank = RankStatus(rank=0, role="worker", node="worker-0", alive=True, usage=usage)
    given = {"phase": "running", "ranks": (rank,), "gpus": 2, "step": 7, "uid": "u", "nodes": 1, **fields}
    return RunStatus(name=name, job=name, engine="kubernetes", created=1.0, **given)  # type: ignore[arg-type]


def lines(gauges: PaceGauges) -> list[str]:
    return [line for line in families("longboat_", gauges.families()).splitlines() if not line.startswith("#")]


def test_what_was_told_of_runs() -> None:
    gauges = PaceGauges()
    assert not gauges.is_wanted, "nobody has scraped"
    assert lines(gauges) == [] and gauges.is_wanted
    gauges.note("a", [running("one", steps_per_s=2.5, findings=("slow",)), running("two", phase="pending")])
    gauges.note("b", [running("one", step=None)])
    assert lines(gauges) == [
        'longboat_run_step{namespace="a",run="one"} 7',
        'longboat_run_steps_per_second{namespace="a",run="one"} 2.5',
        *[f'longboat_run_cpu_cores{{namespace="{space}",run="one"}} 1.5' for space in "ab"],
        *[f'longboat_run_memory_bytes{{namespace="{space}",run="one"}} 1000000000' for space in "ab"],
        *[f'longboat_run_gpus{{namespace="{space}",run="one"}} 2' for space in "ab"],
        *[f'longboat_run_gpu_percent{{namespace="{space}",run="one"}} 40' for space in "ab"],
        'longboat_run_findings{namespace="a",run="one"} 1',
        'longboat_run_findings{namespace="b",run="one"} 0',
    ]
    gauges.note("a", [])
    assert not [line for line in lines(gauges) if 'namespace="a"' in line], "it has ended"


def test_what_was_told_long_ago_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = PaceGauges()
    gauges.note("a", [running("one")])
    monkeypatch.setattr(pace_gauges, "FRESH_S", 0.0)
    assert lines(gauges) == []


def test_names_of_runs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_gauges, "MOST_RUNS", 3)
    gauges = PaceGauges()
    gauges.note("a", [running(f"run-{number}") for number in range(9)])
    assert sum(line.startswith("longboat_run_gpus") for line in lines(gauges)) == 3


def test_of_a_run_only_its_figures_are_kept() -> None:
    """A pod tells of thousands of ranks with a hundred metrics each; the controller has little memory."""
    gauges = PaceGauges()
    run = running("one")
    rank = run.ranks[0]
    gauges.note("a", [run])
    del run
    holders = [holder for holder in gc.get_referrers(rank) if isinstance(holder, tuple)]
    assert not holders
