"""Figures of runs for Prometheus, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from longboat.autoscaler.report import metrics as autoscaler
from longboat.engines.kubernetes.observe import pace_gauges, run_gauges
from longboat.engines.kubernetes.observe.run_gauges import MOST_NAMED, RunGauges
from longboat.engines.kubernetes.records import State

ROOT = Path(__file__).resolve().parents[4]


def lines(gauges: RunGauges) -> list[str]:
    return [line for line in gauges.text(lambda: True).splitlines() if not line.startswith("#")]


def test_runs_are_counted_by_phase_and_ends_by_cause() -> None:
    gauges = RunGauges()
    gauges.note("a", "one", State(phase="running", started=100.5, attempt=1))
    gauges.note("a", "two", State(phase="pending"))
    gauges.note("b", "old", State(phase="succeeded"))  # had ended before anybody watched
    assert lines(gauges) == [
        "longboat_controller_leader 1",
        'longboat_runs{namespace="a",phase="pending"} 1',
        'longboat_runs{namespace="a",phase="running"} 1',
        'longboat_runs{namespace="b",phase="succeeded"} 1',
        'longboat_run_attempt{namespace="a",run="one",phase="running"} 2',
        'longboat_run_attempt{namespace="a",run="two",phase="pending"} 1',
        'longboat_run_started_timestamp_seconds{namespace="a",run="one",phase="running"} 100.5',
    ]
    for _ in range(2):  # a record is told again after a watch broke
        gauges.note("a", "one", State(phase="failed", cause="oom"))
    assert 'longboat_runs_ended_total{namespace="a",phase="failed",cause="oom"} 1' in lines(gauges)
    gauges.note("a", "one", State(phase="failed"), is_deleted=True)
    assert not any('phase="failed"} ' in line for line in lines(gauges) if line.startswith("longboat_runs{"))


def test_names_of_runs_are_bounded() -> None:
    gauges = RunGauges()
    for number in range(MOST_NAMED + 50):
        gauges.note("a", f"run-{number}", State(phase="running"))
    assert sum(line.startswith("longboat_run_attempt") for line in lines(gauges)) == MOST_NAMED
    assert f'longboat_runs{{namespace="a",phase="running"}} {MOST_NAMED + 50}' in lines(gauges)


def test_the_dashboard_and_the_page_name_figures_that_there_are() -> None:
    modules = (run_gauges, pace_gauges, autoscaler)
    source = "".join(Path(str(module.__file__)).read_text() for module in modules)
    board = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"longboat_\w+", target["expr"])
    }
    told = set(re.findall(r"`(longboat_\w+)`", (ROOT / "docs" / "kubernetes.md").read_text()))
    assert len(asked) > 7 and len(told) == 13
    for name in asked | told:
        short = name.removeprefix("longboat_autoscaler_").removeprefix("longboat_")
        assert f'"{short}"' in source, name


def test_a_cause_that_nobody_knows_is_another() -> None:
    gauges = RunGauges()
    for number in range(30):
        gauges.note("a", f"run-{number}", State(phase="running"))
        gauges.note("a", f"run-{number}", State(phase="failed", cause=f"made up {number}"))
    ended = [line for line in lines(gauges) if line.startswith("longboat_runs_ended_total")]
    assert ended == ['longboat_runs_ended_total{namespace="a",phase="failed",cause="other"} 30']


def test_a_namespace_with_many_runs_hides_none_of_the_others() -> None:
    gauges = RunGauges()
    for number in range(MOST_NAMED + 50):
        gauges.note("a", f"run-{number}", State(phase="running"))
    for space in ("b", "c"):
        gauges.note(space, "only", State(phase="running"))
    named = [line for line in lines(gauges) if line.startswith("longboat_run_attempt")]
    assert len(named) == MOST_NAMED
    assert [line for line in named if 'namespace="a"' not in line] == [
        f'longboat_run_attempt{{namespace="{space}",run="only",phase="running"}} 1' for space in ("b", "c")
    ]
