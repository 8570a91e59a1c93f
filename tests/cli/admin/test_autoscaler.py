"""`longboat autoscaler plan` and `explain`, as a process of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.autoscaler.tables import NOW_TEXT, objects, pool_file
from tests.cli.conftest import Longboat

TABLE: dict[str, Any] = {
    "pools": {"a100": {"zones": ["a", "b"]}},
    "nodes": {"busy": {"zone": "a"}, "idle": {"zone": "b", "idle": "20m"}},
    "pods": {
        "t": {"gpus": 8, "on": "busy", "owner": "Job/t"},
        "p": {"gpus": 8, "selector": {"topology.kubernetes.io/zone": "a"}},
        "never": {"gpus": 9},
    },
}


@pytest.fixture
def files(longboat: Longboat) -> tuple[str, ...]:
    (longboat.folder / "objects.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(TABLE)})
    )
    (longboat.folder / "pools.yaml").write_text(yaml.safe_dump(pool_file(TABLE)))
    return ("--objects", "objects.json", "--pools", "pools.yaml", "--now", NOW_TEXT)


def test_plan_as_json(longboat: Longboat, files: tuple[str, ...]) -> None:
    plan = json.loads(longboat("autoscaler", "plan", *files, "-o", "json").out)
    assert [(one["kind"], one["pool"], one["count"], one["zones"]) for one in plan["actions"]] == [
        ("grow", "a100", 1, {"a": 1})
    ]
    assert all(one["reason"] for part in ("actions", "waiting", "nodes") for one in plan[part])
    waiting = {one["pod"]: one for one in plan["waiting"]}
    assert waiting["p"]["expected"] == "2026-11-15T12:05:00Z"
    assert "needs 9 nvidia.com/gpu" in waiting["never"]["reason"]
    assert {one["node"]: one["state"] for one in plan["nodes"]} == {"busy": "busy", "idle": "spare"}


def test_plan_as_a_table(longboat: Longboat, files: tuple[str, ...]) -> None:
    shown = longboat("autoscaler", "plan", *files).out
    assert "grow    a100" in shown
    assert "default/never" in shown
    assert "NODE" in shown and "POOL" in shown


def test_a_saved_snapshot_is_replayed(longboat: Longboat, files: tuple[str, ...]) -> None:
    first = longboat("autoscaler", "plan", *files, "-o", "json", "--save", "seen.json").out
    assert longboat("autoscaler", "plan", "--snapshot", "seen.json", "-o", "json").out == first
    later = longboat("autoscaler", "plan", "--snapshot", "seen.json", "--now", "2026-11-15T13:00:00Z", "-o", "json").out
    waiting = {one["pod"]: one for one in json.loads(later)["waiting"]}
    assert waiting["p"]["expected"] == "2026-11-15T13:05:00Z"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("idle", "node idle is spare: nothing runs here for 20m; kept: the pool grows in this very loop"),
        ("default/p", "pod default/p waits: new machines are ordered"),
        ("p", "pod default/p waits"),
        ("never", "no machine of any pool could ever take it"),
        ("a100", "pool a100: grows by 1"),
        ("t", "pod t waits for no machine"),
    ],
)
def test_explain(longboat: Longboat, files: tuple[str, ...], name: str, words: str) -> None:
    assert words in longboat("autoscaler", "explain", name, *files).out


def test_explain_as_json(longboat: Longboat, files: tuple[str, ...]) -> None:
    found = json.loads(longboat("autoscaler", "explain", "a100", *files, "-o", "json").out)
    assert (found["kind"], found["name"]) == ("pool", "a100") and found["facts"]


def test_a_name_that_nobody_has_is_told_with_the_nearest(longboat: Longboat, files: tuple[str, ...]) -> None:
    done = longboat("autoscaler", "explain", "a10", *files, code=202)
    assert "no node, run, pod or pool is called a10" in done.err
    assert "hint: did you mean a100?" in done.err


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--objects", "none.json", "--pools", "pools.yaml"], 202, "none.json: no such file"),
        (["--objects", "objects.json", "--pools", "none.yaml"], 202, "none.yaml: no such file"),
        (["--objects", "objects.json"], 201, "the option --pools is missing"),
        ([], 201, "the option --pools is missing"),
        (["--objects", "broken.json", "--pools", "pools.yaml"], 201, "broken.json: not valid JSON"),
        (["--objects", "objects.json", "--pools", "bad.yaml"], 201, 'bad.yaml:2:21: pools.0.pric: unknown field; '),
        (["--objects", "objects.json", "--pools", "pools.yaml", "--now", "noon"], 201, "--now: not a time: 'noon'"),
        (["--now", "2026-11-15T12:00:00", "--objects", "objects.json"], 201, "--now: a time without a zone: '2026"),
        (["--snapshot", "broken.json"], 201, "broken.json: no snapshot"),
        (["--snapshot", "none.json"], 202, "none.json: no such file"),
        (["--snapshot", "x", "--objects", "y"], 201, "exclude each other"),
    ],
)  # fmt: skip
def test_mistakes(longboat: Longboat, files: tuple[str, ...], args: list[str], code: int, words: str) -> None:
    Path(longboat.folder / "broken.json").write_text("{")
    Path(longboat.folder / "bad.yaml").write_text(
        "pools:\n- {name: a, max: 1, pric: 3, machine: {cpus: 1, memory: 1Gi}}\n"
    )
    done = longboat("autoscaler", "plan", *args, code=code)
    assert words in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
