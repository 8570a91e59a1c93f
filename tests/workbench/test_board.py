"""`longboat board` with the real TensorBoard: runs by name, one URL, an end by itself, nothing left."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.conftest import s3 as s3
from tests.storage.realstores import Running
from tests.workbench.conftest import Longboat, fetch

WRITER = """
import os, struct, sys, zlib
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.path.join("logs", "train"))
for step in range(3):
    value = Summary.Value(tag="loss", simple_value=float(sys.argv[1]) / (step + 1))
    writer.add_event(Event(wall_time=step, step=step, summary=Summary(value=[value])))
writer.close()
"""


def train(longboat: Longboat, programs: Path, project: Path, name: str, loss: str) -> None:
    (project / "write.py").write_text(WRITER)
    python = str(programs / "bin" / "python")
    done = longboat("run", "-q", "--id", name, "--workdir", ".", "--", python, "write.py", loss)
    assert done.returncode == 0, done.stderr


@pytest.mark.frameworks
def test_two_runs_side_by_side(longboat: Longboat, programs: Path, home: Path, tmp_path: Path) -> None:
    for name, loss in (("low", "1"), ("high", "4")):
        train(longboat, programs, tmp_path / "project", name, loss)
    opened = longboat("board", "low", "high", "-d", "--no-browser")
    assert opened.returncode == 0, opened.stderr
    url = opened.stdout.splitlines()[0]
    assert json.loads(fetch(url + "data/runs")) == ["high/train", "low/train"]
    curve = json.loads(fetch(url + "data/plugin/scalars/scalars?run=high%2Ftrain&tag=loss"))
    assert [value for _, _, value in curve] == pytest.approx([4, 2, 4 / 3])
    # Whoever opens it a second time leaves it by Ctrl-C: the first one still looks at it.
    program = [str(Path(sys.executable).parent / "longboat"), "board", "low", "high", "--no-browser"]
    again = subprocess.Popen(
        program, cwd=tmp_path / "project", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert again.stdout is not None and again.stderr is not None
    assert again.stdout.readline().strip() == url
    assert "Ctrl-C leaves it: board was open before" in again.stderr.readline()
    again.send_signal(signal.SIGINT)
    assert again.wait(60) == 0
    assert json.loads(fetch(url + "data/runs")) == ["high/train", "low/train"]
    assert longboat("stop", "board").returncode == 0
    with pytest.raises(OSError):
        fetch(url)
    assert longboat("rm", "board").returncode == 0
    assert not list(home.rglob("*workbench*"))
    assert not (home / "runs" / "board").exists()


@pytest.mark.frameworks
def test_ends_by_itself_when_nobody_looks(longboat: Longboat, programs: Path, home: Path) -> None:
    opened = longboat("board", "--all", "--no-browser", "--idle", "4s")
    assert opened.returncode == 0, opened.stderr
    assert opened.stdout.startswith("http://127.0.0.1:")
    assert "board succeeded" in opened.stderr
    assert "nobody used it for 4 s" in longboat("logs", "board").stdout + longboat("logs", "board").stderr


@pytest.mark.frameworks
@pytest.mark.stores
def test_a_store_that_cannot_be_read_is_told(
    longboat: Longboat, programs: Path, s3: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the page is merely empty."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    opened = longboat("board", "-d", "--logs", "cnn=s3://no-such-bucket/logs")
    assert opened.returncode == 0, opened.stderr
    assert "note: s3://no-such-bucket/logs/ cannot be read: there is no bucket no-such-bucket" in opened.stderr
    # Who names no port gets the board that is open, and hears it too.
    again = longboat("board", "-d", "--idle", "2h", "--logs", "cnn=s3://no-such-bucket/logs")
    assert again.stdout == opened.stdout and "no bucket" in again.stderr


@pytest.mark.frameworks
def test_a_store_that_does_not_answer_keeps_no_board_from_opening(
    longboat: Longboat, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        opened = longboat("board", "-d", "--logs", "cnn=s3://data/logs")
    assert opened.returncode == 0, opened.stderr
    assert "the object store has not answered for 5 s" in opened.stderr
    assert json.loads(fetch(opened.stdout.strip() + "data/runs")) == []


def test_without_tensorboard_it_says_how_to_get_it(longboat: Longboat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    opened = longboat("board", "--all")
    if "http" in opened.stdout:
        pytest.skip("this machine has TensorBoard")
    assert opened.returncode == 205  # as of each program that is missing
    assert "TensorBoard is not installed" in opened.stderr
    assert "pip install tensorboard" in opened.stderr


def test_a_port_that_is_taken(longboat: Longboat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tensorboard"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        opened = longboat("board", "--all", "--port", str(taken.getsockname()[1]))
    assert opened.returncode == 201
    assert "cannot be used: Address already in use" in opened.stderr
    assert longboat("ps", "-a", "-o", "name").stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "--all"), "RUN, --all and -l exclude each other"),
        (("nix",), "no run named 'nix'"),
        (("-l", "="), "label"),
    ],
)
def test_bad_input(longboat: Longboat, words: tuple[str, ...], message: str) -> None:
    opened = longboat("board", *words)
    assert opened.returncode in (201, 202)
    assert message in opened.stderr
    assert "Traceback" not in opened.stderr
