"""`longboat prune`: what it says, and that it asks where somebody can answer."""

from __future__ import annotations

import json

import pytest

from longboat.cli.commands.runs.prune import remove, summary
from longboat.core.runs import PrunedItem
from tests.cli.conftest import Longboat


def test_shows_first_and_removes_then(longboat: Longboat) -> None:
    longboat("run", "-q", "train.py")
    longboat("run", "-q", "-n", "bad", "--", "false", code=1)
    shown = longboat("prune", "--older-than", "0s", "--dry-run")
    assert [line.split()[:3] for line in shown.out.splitlines()[1:]] == [
        ["bad", "run", "failed"],
        ["train", "run", "succeeded"],
    ]
    assert shown.err.startswith("would remove 2 runs, ")
    assert [
        run["name"] for run in json.loads(longboat("prune", "--older-than", "1h", "--dry-run", "-o", "json").out)
    ] == []
    assert longboat("prune", "--older-than", "0s", "--failed").out == "bad\n"
    assert longboat("ps", "-o", "name").out == "train\n"
    assert longboat("prune", "--older-than", "1h").err == "removed nothing\n"


def test_an_age_is_needed(longboat: Longboat) -> None:
    answer = longboat("prune", code=201)
    assert answer.err.splitlines()[0] == "error: say how old: --older-than" and "hint: " in answer.err
    assert "not a duration" in longboat("prune", "--older-than", "long", code=201).err


def test_a_status_has_the_disk_use(longboat: Longboat) -> None:
    longboat("run", "-q", "train.py")
    assert "without checkpoints" in longboat("status").out
    assert json.loads(longboat("status", "-o", "json").out)["disk"] > 4096


def test_words_of_what_is_removed() -> None:
    runs = [PrunedItem(kind="run", name=name, size=1 << 20) for name in "ab"]
    assert summary(runs) == "2 runs, 2Mi"
    assert summary([*runs, PrunedItem(kind="environment", name="e", size=0)]) == "2 runs and 1 environment, 2Mi"
    assert summary([*runs, PrunedItem(kind="data", name="d")]) == "2 runs and 1 data import"
    assert summary([PrunedItem(kind="sweep", name="s")]) == "1 sweep"
    assert summary([]) == "nothing"


def test_what_could_not_be_removed_is_told_and_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    items = [PrunedItem(kind="run", name="stuck", problem="a pod goes on"), PrunedItem(kind="run", name="gone")]
    assert remove(items, "table") == 205
    told = capsys.readouterr()
    assert told.out == "gone\n"
    assert "not removed: stuck: a pod goes on" in told.err and "removed 1 run" in told.err
    assert remove(items[1:], "table") == 0
