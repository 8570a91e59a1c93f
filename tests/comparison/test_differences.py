"""Runs side by side, as data."""

from __future__ import annotations

from typing import Any

from longboat.comparison.differences import CodeChange, compare_runs, differing_fields, metric_rows
from longboat.comparison.page import html_page
from longboat.core.jobs import Gpus, Job, Resources, Role
from longboat.core.runs import Attempt, RunStatus
from longboat.metrics.values import RunMetrics, Software


def job(run: str = "train", **fields: Any) -> Job:
    role = Role(name="worker", run=run, env=fields.pop("env", {}), resources=fields.pop("resources", Resources()))
    return Job(name="j", roles=(role,), **fields)


def status(name: str, spec: Job, **fields: Any) -> RunStatus:
    shown = {"phase": "succeeded", "engine": "local", "created": 0.0, "nodes": 1, "gpus": spec.gpus, **fields}
    return RunStatus(name=name, uid=name, job="j", spec=spec, **shown)


def test_only_fields_that_differ_and_parameters_first() -> None:
    first = job("a", params={"lr": 0.1, "n": 1}, env={"X": "1"}, labels={"trial": "1", "team": "a"})
    second = job("b", params={"lr": 0.2, "n": 1}, labels={"trial": "2", "team": "a"}, retries=first.retries)
    rows = differing_fields([first, second])
    assert rows == {"params.lr": (0.1, 0.2), "run": ("a", "b"), "env.X": ("1", None)}
    assert next(iter(rows)) == "params.lr"
    assert differing_fields([first, first]) == {}


def test_metrics_at_the_last_step_that_all_have_reached() -> None:
    long = {"loss": [(1, 0.0, 1.0), (5, 0.0, 0.5), (10, 0.0, 0.1)], "only": [(1, 0.0, 2.0)]}
    short = {"loss": [(2, 0.0, 0.9), (6, 0.0, 0.4)]}
    rows = {row.name: row for row in metric_rows([long, short])}
    assert (rows["loss"].step, rows["loss"].at_step, rows["loss"].last) == (6, (0.5, 0.4), (0.1, 0.4))
    assert (rows["only"].step, rows["only"].at_step, rows["only"].last) == (None, (None, None), (2.0, None))
    (bad,) = metric_rows([{"loss": [(1, 0.0, float("nan"))]}, {"loss": [(1, 0.0, 1.0)]}])
    assert bad.last == (None, 1.0)


def test_time_and_gpu_hours() -> None:
    spec = job(resources=Resources(gpus=Gpus(count=2)))
    runs = [
        status("a", spec, started=0.0, ended=3600.0, attempts=(Attempt(number=0, started=0.0, ended=3600.0),)),
        status("b", spec, phase="running", started=0.0, attempts=(Attempt(number=0, started=0.0),)),
    ]
    figures = compare_runs(runs, [RunMetrics(run="a"), RunMetrics(run="b")], [], now=1800.0).figures
    assert figures["seconds"] == (3600.0, 1800.0) and figures["gpu_hours"] == (2.0, 1.0)


def test_cost_and_energy_where_they_are_known() -> None:
    spec = job(resources=Resources(gpus=Gpus(count=2)))
    run = status("a", spec, started=0.0, ended=3600.0, attempts=(Attempt(number=0, started=0.0, ended=3600.0),))
    power = tuple((10.0 * number, 500.0) for number in range(361))
    later = ((9000.0, 500.0), (9010.0, float("nan")))  # another attempt, long after
    metrics = [
        RunMetrics(run="a", system={"0": {"gpu_power": power + later}, "1": {"gpu_power": power}}),
        RunMetrics(run="b"),
    ]
    figures = compare_runs([run, run], metrics, [], now=1.0, prices=[2.5, 0.0]).figures
    assert figures["cost"] == (5.0, None) and figures["gpu_kwh"] == (1.0, None)
    assert compare_runs([run], metrics[1:], [], now=1.0).figures["cost"] == (None,)


def test_the_page_holds_everything_and_loads_nothing() -> None:
    hostile = "<script>alert(1)</script>"
    runs = [status("a", job(hostile)), status("b", job("b"))]
    metrics = [RunMetrics(run="a", series={hostile: ((1, 0.0, 1.0), (2, 0.0, 0.5))}), RunMetrics(run="b")]
    code = [CodeChange(run="b", is_known=True, changed=("x",), diff=f"+{hostile}")]
    comparison = compare_runs(runs, metrics, code, now=0.0)
    page = html_page(comparison, metrics, [("", "a", "b"), ("run", hostile, None)])
    assert "<script" not in page and page.count("&lt;script&gt;") >= 3
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def software(**packages: str) -> Software:
    return Software(python="python3.11", packages=packages, driver="550.1", gpus={"NVIDIA H100": 8})


def test_what_runs_ran_in_and_the_packages_that_differ() -> None:
    runs = [status("a", job(), images={"worker": "x@sha256:1"}), status("b", job()), status("c", job())]
    told = [software(numpy="1", torch="2"), software(numpy="2", torch="2", extra="1"), Software()]
    metrics = [RunMetrics(run=run.name, software=each) for run, each in zip(runs, told)]
    comparison = compare_runs(runs, metrics, [], now=0.0)
    assert comparison.packages == {"extra": (None, "1", None), "numpy": ("1", "2", None)}
    assert comparison.environment == {
        "image": ("x@sha256:1", None, None),
        "python": ("python3.11", "python3.11", None),
        "packages": (2, 3, None),
        "gpu_type": ("8 x NVIDIA H100", "8 x NVIDIA H100", None),
        "driver": ("550.1", "550.1", None),
    }
    assert compare_runs(runs[1:], [RunMetrics(run="b")] * 2, [], now=0.0).environment == {}
