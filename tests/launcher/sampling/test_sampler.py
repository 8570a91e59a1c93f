"""A real launcher samples its ranks and keeps what their trainers report."""

from __future__ import annotations

import json
import time
from _thread import allocate_lock
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longboat.launcher.sampling.event_watch import EventWatch
from longboat.launcher.sampling.sampler import Sampler
from longboat.metrics.series_file import join, parse
from tests.launcher.nodes import Node, until

TRAIN = """
import sys, time, longboat
for n in range(30):
    longboat.step(n, loss=1 / (n + 1))
    longboat.step(n, accuracy=n / 30)
longboat.step(30, loss=float("nan"))
while len(sys.argv) > 1 and not longboat.should_stop(): time.sleep(0.05)
"""


def metrics(node: Node) -> object:
    return join("r", [parse((node.directory / "metrics.jsonl").read_bytes(), node="worker-0", attempt=0)])


def test_a_short_run_keeps_every_point(make_node: Callable[..., Node]) -> None:
    node = make_node(["python", "train.py"], procs=2)
    node.script(TRAIN)
    assert node.run() == 0
    series = metrics(node).series  # type: ignore[attr-defined]
    assert [step for step, _, _ in series["accuracy"]] == list(range(30))
    assert [step for step, _, _ in series["loss"]] == list(range(31))
    beat = json.loads((node.directory / "beat.json").read_text())
    assert beat["ranks"]["1"]["usage"]["not_finite"] == {"loss": 30}


def test_ranks_and_the_node_are_sampled_while_they_run(make_node: Callable[..., Node]) -> None:
    node = make_node(["python", "train.py", "wait"])
    node.script(TRAIN)
    launcher = node.start()

    def usage() -> object:
        beat = node.directory / "beat.json"
        return beat.exists() and json.loads(beat.read_text())["ranks"].get("0", {}).get("usage", {}).get("memory")

    assert until(usage) > 1 << 20
    launcher.terminate()
    assert launcher.wait() == 0
    samples = metrics(node)
    assert samples.system["0"]["memory"][0][1] > 1 << 20  # type: ignore[attr-defined]
    assert set(samples.system["0"]) >= {"cpu", "memory", "disk_read", "disk_write"}  # type: ignore[attr-defined]
    assert samples.nodes["worker-0"]["memory"][0][1] > 1 << 20  # type: ignore[attr-defined]


def test_a_rank_without_numbers_leaves_no_file(make_node: Callable[..., Node]) -> None:
    node = make_node("true")
    assert node.run() == 0
    assert not (node.directory / "metrics.jsonl").exists()


class Trees(dict):  # type: ignore[type-arg]
    """No rank has processes any more."""

    def get(self, key: object, default: object = None) -> object:
        return None


def test_the_last_steps_are_kept_before_event_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the node waits for a sampler for a short time only, and event files may be long."""
    (tmp_path / "steps").mkdir()
    plan = SimpleNamespace(
        node="worker-0", node_rank=1, role="worker", attempt=0, workdir=str(tmp_path), artifacts_dir=None,
        checkpoint_dir=None,
    )  # fmt: skip
    rank: Any = SimpleNamespace(rank=0, usage={})
    state: Any = SimpleNamespace(
        ranks=[rank], plan=plan, env={}, gpus=[], path=lambda *names: str(tmp_path.joinpath(*names))
    )
    kept: list[list[int]] = []

    def take(self: EventWatch, pids: list[int], spacing_s: float, *, is_last: bool = False) -> list[list[Any]]:
        if is_last:
            file = parse((tmp_path / "metrics.jsonl").read_bytes(), node="worker-0", attempt=0)
            kept.append([step for step, _, _ in file.steps["loss"][0]])
        self.bad["tag"] = 3
        return [[5.0, "logs", 3, {"tag": None}]] if is_last else []

    monkeypatch.setattr(EventWatch, "take", take)
    stop = allocate_lock()  # free: sampling ends after the first turn
    (tmp_path / "steps" / "0.series").write_text('[1, 10.0, {"loss": 0.5}]\n')
    Sampler(state, Trees, (time.monotonic(), time.time())).run(stop)
    assert kept == [[1]] and rank.usage["not_finite"] == {"tag": 3}
    whole = parse((tmp_path / "metrics.jsonl").read_bytes(), node="worker-0", attempt=0)
    assert [step for step, _, _ in whole.events["logs\ntag"]] == [3]
