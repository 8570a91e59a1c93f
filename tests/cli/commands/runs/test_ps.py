"""`longboat ps`: what is listed, and in which formats."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from longboat.cli.commands.runs.ps import is_recent, row, run_record, selector, unmatched
from longboat.core.errors import UsageError
from longboat.core.runs import RunStatus

RUN = RunStatus(
    name="digits", uid="u", job="digits", phase="failed", engine="local", created=100.0, nodes=2, gpus=4, exit_code=3,
    started=110.0, ended=170.0, reason="why", attempt=1, retries=2, user="me", command="python x.py",
)  # fmt: skip


def test_rows() -> None:
    assert row(RUN, wide=False, now=220.0) == ("digits", "failed", 2, 4, "2m", "1m", 3, "why")
    assert row(RUN, wide=True, now=220.0)[7:] == ("2/3", None, "", "local", "me", "python x.py", "why")
    stepping = msgspec.structs.replace(RUN, step=7, metrics={"loss": 0.25, "lr": 1e-05})
    assert row(stepping, wide=True, now=220.0)[8:10] == (7, "loss=0.25, lr=1e-05")
    assert run_record(stepping)["metrics"] == {"loss": 0.25, "lr": 1e-05}


def test_recent_is_unfinished_or_within_a_day() -> None:
    assert is_recent(RUN, 170.0 + 86399)
    assert not is_recent(RUN, 170.0 + 86401)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([], True),
        (["a=1"], True),
        (["a=2"], False),
        (["a!=2"], True),
        (["a!=1"], False),
        (["a==1"], True),
        (["a == 1, b = 2"], True),
        (["c="], False),
        (["example.org/team!=x"], True),
        (["a"], True),
        (["!a"], False),
        (["!c"], True),
        (["a=1,b=2"], True),
        (["a=1", "b=3"], False),
    ],
)
def test_selectors(terms: list[str], expected: bool) -> None:
    assert selector(terms)({"a": "1", "b": "2"}) is expected


@pytest.mark.parametrize("text", ["a=1,", "a b", "a in (1,2)", "=1", "!a=1", "a=b=c", "!"])
def test_what_is_no_selector_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError):
        selector([text])


def test_formats(longboat) -> None:
    assert longboat("ps").err.startswith("no runs")
    longboat("run", "-q", "-n", "good", "--label", "kind=test", "--", "true")
    longboat("run", "-q", "-n", "bad", "--procs", "2", "--", "sh", "-c", "exit 3", code=3)
    records = json.loads(longboat("ps", "-o", "json").out)
    seen = [(record["name"], record["phase"], record["exit_code"]) for record in records]
    assert seen == [("bad", "failed", 3), ("good", "succeeded", 0)]
    for record in records:
        assert {"name", "phase", "exit_code", "created", "nodes", "gpus", "engine"} <= set(record)
        assert record["created"].endswith("Z") and record["engine"] == "local"
    assert yaml.safe_load(longboat("ps", "-o", "yaml").out) == records
    assert longboat("ps", "-o", "name").out == "bad\ngood\n"
    assert longboat("ps", "-l", "kind=test", "-o", "name").out == "good\n"
    head, first, second = longboat("ps").out.splitlines()
    assert head.split() == ["NAME", "PHASE", "NODES", "GPUS", "AGE", "TIME", "EXIT", "INFO"]
    assert first.split()[:4] == ["bad", "failed", "1", "0"]
    assert "COMMAND" in longboat("ps", "-o", "wide").out


def test_status_in_full(longboat) -> None:
    longboat("run", "-q", "-n", "bad", "--procs", "2", "--", "sh", "-c", "exit 3", code=3)
    record = json.loads(longboat("status", "bad", "-o", "json").out)
    assert record["exit_code"] == 3 and record["attempts"][0]["failure"]["exit_code"] == 3
    assert {rank["rank"] for rank in record["ranks"]} == {0, 1}
    assert yaml.safe_load(longboat("status", "b", "-o", "yaml").out) == record
    assert longboat("status", "-o", "name").out == "bad\n"
    text = longboat("status", "bad").out
    assert "exit code: " in text and "ATTEMPT  STARTED" in text and "RANK  NODE" in text
    both = json.loads(longboat("status", "bad", "bad", "-o", "json").out)
    assert [run["name"] for run in both] == ["bad", "bad"]


def test_the_term_that_selects_nothing_is_named() -> None:
    runs = [msgspec.structs.replace(RUN, labels=labels) for labels in ({"team": "a"}, {"stage": "test"})]
    assert unmatched(["team=x,stage"], runs) == "team=x"
    assert unmatched(["team=a", "stage"], runs) == "all of team=a, stage"
