"""Metrics on the pod's log: packed by the launcher, read back by the engine, passed over by readers of logs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longboat.engines.kubernetes.logs.lines import Parser, is_piece, take
from longboat.engines.kubernetes.logs.metrics_files import log_copies
from longboat.engines.kubernetes.observe.progress import ended_ranks
from longboat.engines.kubernetes.observe.termination import NodeEnd, PodEnd, read_termination
from longboat.launcher.sampling import log_copy as writer
from longboat.metrics.series_file import join, parse
from tests.launcher.pods import Pods

TRAIN = "import longboat\nfor n in range(50): longboat.step(n, loss=1 / (n + 1))\nprint('done')"


def written(folder: Path, rows: list[object]) -> bytes:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = SimpleNamespace(again=None, attempt=0, mark="")
    state = SimpleNamespace(path=lambda *names: str(folder.joinpath(*names)), plan=plan)
    read, write = os.pipe()
    kept = os.dup(1)
    os.set_blocking(read, False)
    try:
        os.dup2(write, 1)
        writer.write_log_copy(state)  # type: ignore[arg-type]
    finally:
        os.dup2(kept, 1)
        for descriptor in (kept, write):
            os.close(descriptor)
    with open(read, "rb") as file:
        return file.read()


def test_what_is_written_is_read_back_and_shown_to_nobody(tmp_path: Path) -> None:
    rows: list[object] = [{"v": 1, "columns": {"rank": ["cpu"]}}]
    rows += [["step", 1000.0 + n, 0, n, {"loss": 1 / (n + 1)}] for n in range(3000)]
    rows += [["rank", 1000.0 + n, 0, n / 7] for n in range(0, 3000, 5)]
    log = b"0.out 0 2026-11-16T13:00:00.000000Z hello\n" + written(tmp_path, rows) + b"something else\n"
    assert 2 < log.count(b"\n") < 16 and len(log) < 48 << 10
    metrics = join("r", [parse(log_copies(log)[None], node="w-0", attempt=0)])
    assert metrics.last("loss") == 1 / 3000
    assert len(metrics.series["loss"]) > 300 and len(metrics.system["0"]["cpu"]) > 300
    seen: dict[str, int] = {}
    lines = log.splitlines(keepends=True)
    assert [line for line in lines if take(Parser().parse(line), seen)] == [lines[0], lines[-1]]
    assert all(map(is_piece, lines[1:-1]))


def test_a_log_without_a_copy_or_with_a_damaged_one_has_no_metrics(tmp_path: Path) -> None:
    assert log_copies(b"0.out 0 2026-11-16T13:00:00.000000Z hello\n") == {}
    log = written(tmp_path, [["step", 1.0 + n, 0, n, {"loss": n}] for n in range(2000)])
    for damaged in (log[: len(log) // 2], log.replace(b"A", b"B"), log[: len(log) // 3] + log[len(log) // 2 :]):
        steps = join("r", [parse(log_copies(damaged).get(None, b""), node="w-0", attempt=0)]).series.get("loss", ())
        assert len(steps) < 2000


def losses(data: bytes) -> list[int]:
    return [step for step, _, _ in join("r", [parse(data, node="w-0", attempt=0)]).series["loss"]]


def test_a_pod_without_a_storage_leaves_its_metrics_on_its_log(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods(script=TRAIN)
    assert pods.run() == [0]
    assert losses(log_copies(pods.stdout().encode())[None]) == list(range(50))


def test_a_pod_that_was_restarted_in_place_leaves_those_of_every_attempt(make_pods: Callable[..., Pods]) -> None:
    fails = "\nimport os, sys\nsys.exit(3 if os.environ['LONGBOAT_ATTEMPT'] == '0' else 0)"
    pods = make_pods(script=TRAIN + fails, restart={"count": 1, "on": [], "backoff_s": 0.0, "within_s": 1.0})
    assert pods.run() == [0]
    copies = log_copies(pods.stdout().encode())
    assert {mark: losses(data) for mark, data in copies.items()} == {None: list(range(50)), 1: list(range(50))}


def test_the_last_words_of_a_pod_tell_of_a_loss_that_was_no_number(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods(script="import longboat\nlongboat.step(3, loss=float('nan'))")
    assert pods.run() == [0]
    assert pods.message()["usage"] == {"not_finite": {"loss": 3}}
    (rank,) = ended_ranks(SimpleNamespace(role="worker", node="worker-0", end=PodEnd(0, said=end_of(pods))))  # type: ignore[arg-type]
    assert rank.usage.not_finite == {"loss": 3}


def end_of(pods: Pods) -> NodeEnd:
    told = read_termination((pods.root(0) / "termination").read_text())
    assert told is not None
    return told


def test_a_pod_with_a_storage_keeps_its_file_there(make_pods: Callable[..., Pods]) -> None:
    pods: Any = make_pods(script=TRAIN)
    pods.gang["keep"] = str(pods.folder / "kept")
    assert pods.run() == [0]
    assert losses((pods.folder / "kept" / "0" / "worker-0" / "metrics.jsonl").read_bytes()) == list(range(50))
    assert log_copies(pods.stdout().encode()) == {}


def test_the_end_waits_for_a_slow_reader_so_long_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[object] = [["step", 1000.0 + n, 0, n, {"loss": 1 / (n + 1)}] for n in range(3000)]
    whole = written(tmp_path, rows).count(b"\n")
    now = [0.0]

    class Slow:
        """A reader that takes a line in four tenths of what the writer waits for."""

        def register(self, descriptor: int, mask: int) -> None: ...

        def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
            takes_s = 0.4 * writer.PATIENCE_S
            now[0] += min(takes_s, timeout_ms / 1000)
            return [(1, 4)] if timeout_ms / 1000 >= takes_s else []

    monkeypatch.setattr(writer, "select", SimpleNamespace(poll=Slow, POLLOUT=4))
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns))
    assert whole > 2 and written(tmp_path, rows).count(b"\n") == 2
    assert now[0] <= writer.PATIENCE_S
