"""Metrics of a run as a value: what sweeps and dashboards read."""

from __future__ import annotations

from longboat.core.runs import RunStatus
from longboat.metrics.values import RunMetrics, last_points


def status(**fields: object) -> RunStatus:
    return RunStatus(
        **{
            "name": "r",
            "uid": "u",
            "job": "r",
            "phase": "running",
            "engine": "local",
            "created": 1.0,
            "nodes": 1,
            "gpus": 0,
        }
        | fields  # type: ignore[arg-type]
    )


def test_the_last_value_of_a_metric() -> None:
    metrics = RunMetrics(run="r", series={"loss": ((1, 10.0, 0.5), (2, 11.0, 0.25))})
    assert metrics.last("loss") == 0.25
    assert metrics.last("accuracy") is None


def test_of_the_last_values_there_is_one_point() -> None:
    assert last_points("r", 7, {"loss": 0.5}, 9.0).series == {"loss": ((7, 9.0, 0.5),)}
    assert last_points("r", None, {"loss": 0.5}, 9.0).series == {}
