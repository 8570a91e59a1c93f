"""A reader of a node's log files gets every line, and an ended node waits for it, for a while. Real launchers."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.engines.kubernetes.logs.lines import Parser as LineParser
from longboat.engines.kubernetes.logs.lines import PodLine, batches
from longboat.launcher.pod.log_feed import LogFeed
from tests.launcher.nodes import LAUNCHER, PATIENCE_S
from tests.launcher.pods import Pods

LINES = 60_000
TALKS = f"""
import sys
for at in range({LINES}):
    print("line", at, "x" * 40)
sys.stderr.write("no newline")
"""
WAITS = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.environ["SHARED"] + "/go"):
    time.sleep(0.02)
"""


def feed(node: Path, seen: dict[str, int] | None = None, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--logs", str(node), json.dumps(seen or {}), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def lines_of(data: bytes) -> list[PodLine]:
    parser = LineParser()
    return [parser.parse(raw) for batch in batches([data]) for raw in batch if raw != b"\n"]


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[list[Pods]]:
    made: list[Pods] = []
    yield made
    for one in made:
        one.close()


def started(gangs: list[Pods], folder: Path, script: str, **keys: object) -> Pods:
    gang = Pods(folder, script=script, **keys)  # type: ignore[arg-type]
    gangs.append(gang)
    gang.start(0)
    deadline = time.monotonic() + PATIENCE_S
    while not (gang.node(0) / "logs").is_dir():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return gang


def test_a_slow_reader_gets_every_line_and_the_node_waits_for_it(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, TALKS, log_wait_s=60)
    reader = feed(gang.node(0), {}, "follow")
    deadline = time.monotonic() + PATIENCE_S
    while not (gang.node(0) / "logs-complete").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert gang.processes[0].poll() is None, "its reader has nothing yet"
    out, _ = reader.communicate(timeout=PATIENCE_S)
    assert gang.processes[0].wait(PATIENCE_S) == 0
    found = lines_of(out)
    assert [line.seq for line in found if line.key == "0.out"] == list(range(LINES))
    assert [line.data for line in found if line.key == "0.out"][-1] == b"line %d %s\n" % (LINES - 1, b"x" * 40)
    assert [line.data for line in found if line.key == "0.err"] == [b"no newline"]


def test_a_reader_that_takes_nothing_is_not_waited_for_without_end(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, TALKS, log_wait_s=1)
    reader = feed(gang.node(0), {}, "follow")
    assert gang.processes[0].wait(PATIENCE_S) == 0
    reader.communicate(timeout=PATIENCE_S)


def test_a_reader_that_was_killed_is_not_waited_for(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, WAITS, log_wait_s=600)
    reader = feed(gang.node(0), {}, "follow")
    assert reader.stdout is not None and b"begun" in reader.stdout.readline()
    assert list((gang.node(0) / "readers").iterdir())
    reader.kill()
    reader.communicate()
    (tmp_path / "go").touch()
    assert gang.processes[0].wait(PATIENCE_S) == 0


def test_without_readers_nobody_is_waited_for(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, "print(1)", log_wait_s=600)
    assert gang.processes[0].wait(PATIENCE_S) == 0


@pytest.mark.parametrize("have", [0, 1, 17, LINES - 1, LINES, LINES + 5])
def test_what_the_reader_has_is_left_out(gangs: list[Pods], tmp_path: Path, have: int) -> None:
    gang = started(gangs, tmp_path, TALKS)
    assert gang.processes[0].wait(PATIENCE_S) == 0
    out, _ = feed(gang.node(0), {"0.out": have}).communicate(timeout=PATIENCE_S)
    assert [line.seq for line in lines_of(out) if line.key == "0.out"] == list(range(have, LINES))


def test_a_reader_may_come_before_the_launcher(tmp_path: Path) -> None:
    reader = feed(tmp_path / "node", None, "follow")
    time.sleep(0.3)  # it has looked once
    assert reader.poll() is None
    logs = tmp_path / "node" / "logs"
    logs.mkdir(parents=True)
    for name in ("0.out", "0.out.idx"):
        (logs / name).write_bytes(b"" if name.endswith("idx") else b"said\n")
    (tmp_path / "node" / "logs-complete").write_bytes(b"")
    shown, _ = reader.communicate(timeout=PATIENCE_S)
    assert [line.data for line in lines_of(shown)] == [b"said\n"] and reader.returncode == 0


def test_a_launcher_that_was_killed_is_an_end_too(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, WAITS, log_wait_s=600)
    reader = feed(gang.node(0), {}, "follow")
    assert reader.stdout is not None and b"begun" in reader.stdout.readline()
    gang.processes[0].kill()
    gang.processes[0].wait()
    (tmp_path / "go").touch()
    assert reader.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("words", [[], ["/tmp"], ["/tmp", "[1]"], ["/nonexistent", "{}"]])
def test_wrong_words(words: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCHER), "--logs", *words], capture_output=True, text=True
    )
    assert ended.returncode in (201, 202) and len(ended.stderr.splitlines()) == 1


def test_pieces_of_an_unfinished_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.launcher.ranks.pod_log.PIECE_S", 0.0)
    monkeypatch.setattr("longboat.launcher.ranks.pod_log.SLOW_PIECE_S", 0.0)
    monkeypatch.setattr("longboat.launcher.pod.log_feed.MOST_PIECE", 100)
    (tmp_path / "logs").mkdir()
    log, index, end = tmp_path / "logs" / "0.out", tmp_path / "logs" / "0.out.idx", 0
    reader, writer = os.pipe()
    feeding, parser, found = LogFeed(str(tmp_path), {}, writer), LineParser(), []
    for data in (b"one\nEpoch ", b"1:\r", b"", b"2:", b" done\n", b"x" * 101, b"y\nend"):
        with log.open("ab") as file, index.open("ab") as times:
            file.write(data)
            end += len(data)
            times.write(struct.pack("<QQ", end, 1))
        feeding.find()
        if feeding.send():
            found += [parser.parse(raw) for raw in os.read(reader, 65536).split(b"\n")[:-1]]
    os.close(reader)
    os.close(writer)
    assert [(line.seq, line.start, line.data) for line in found] == [
        (0, -1, b"one"), (1, 0, b"Epoch "), (1, 6, b"1:\r|"), (1, 9, b"2:"), (1, -1, b"Epoch 1:\r2: done"),
        (2, -1, b"x" * 101 + b"y"), (3, 0, b"end"),
    ]  # fmt: skip
