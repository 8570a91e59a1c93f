"""`longboat metrics` of a real run on this machine."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree as ET

import pytest

from longboat.cli.commands.metrics.metrics import print_system
from longboat.metrics.values import RunMetrics
from tests.cli.conftest import Longboat

TRAIN = """
import longboat
for n in range(20):
    longboat.step(n, loss=1 / (n + 1), lr=0.1)
longboat.step(20, loss=float("inf"))
"""


def test_curves_and_data_of_a_run(longboat: Longboat) -> None:
    (longboat.folder / "train.py").write_text(TRAIN)
    longboat("run", "--name", "m1", "train.py")
    shown = longboat("metrics", "m1").out
    assert "loss  last nan at 20, min 0.05 at 19, max 1 at 0, 1 not finite" in shown
    assert "lr  last 0.1 at 19" in shown
    told = json.loads(longboat("metrics", "m1", "--metric", "loss", "-o", "json").out)
    assert told["run"] == "m1" and list(told["series"]) == ["loss"]
    assert [point[0] for point in told["series"]["loss"]] == list(range(21))
    assert told["series"]["loss"][0][2] == 1.0 and told["series"]["loss"][20][2] is None
    rows = list(csv.DictReader(io.StringIO(longboat("metrics", "m1", "-o", "csv").out)))
    assert [row["value"] for row in rows if row["metric"] == "lr"] == ["0.1"] * 20
    assert ET.fromstring(longboat("metrics", "m1", "-o", "svg").out).tag.endswith("svg")
    assert "did you mean loss?" in longboat("metrics", "m1", "--metric", "los", code=202).err


def test_a_run_without_metrics_says_how_to_report_some(longboat: Longboat) -> None:
    longboat("run", "--name", "m2", "--", "true")
    done = longboat("metrics", "m2")
    assert done.out == "" and "longboat.step(n, loss=...)" in done.err
    assert json.loads(longboat("metrics", "m2", "-o", "json").out)["series"] == {}, "no field is left out"


def test_of_a_run_too_short_for_a_sample_no_empty_table_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_system(RunMetrics(run="r", nodes={"worker-0": {}}))
    assert capsys.readouterr().out == ""
    print_system(RunMetrics(run="r", nodes={"worker-0": {"cpu": ((1.0, 2.0), (2.0, 4.0))}}))
    assert "worker-0  4 / 3" in capsys.readouterr().out
