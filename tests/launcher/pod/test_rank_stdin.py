"""stdin of a pod's only rank: what comes reaches it, an end is an end, and nobody waits for those who have gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.nodes import LAUNCHER, PATIENCE_S, until
from tests.launcher.pods import Pods

ECHOES = "import sys\nfor line in sys.stdin:\n    print('read', line, end='', flush=True)\nprint('over')\n"
IDLES = "import os, time\nwhile not os.path.exists(os.environ['SHARED'] + '/go'):\n    time.sleep(0.02)\n"


@pytest.fixture
def gangs() -> Iterator[list[Pods]]:
    made: list[Pods] = []
    yield made
    for gang in made:
        gang.close()


def started(gangs: list[Pods], folder: Path, script: str) -> Pods:
    gang = Pods(folder, script=script, stdin=True)
    gangs.append(gang)
    gang.start(0)
    return gang


def submitter(gang: Pods) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--stdin", str(gang.node(0))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def send(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def said(gang: Pods) -> bytes:
    return (gang.node(0) / "logs" / "0.out").read_bytes()


def test_what_comes_is_read_as_it_comes_and_ends(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, ECHOES)
    process = submitter(gang)
    send(process, frame(b"o"))
    assert process.stdout is not None and process.stdout.readline() == b"\n", "the rank has read it"
    send(process, frame(b"ne\n"))
    until(lambda: said(gang) == b"read one\n")
    big = b"x" * 300_000 + b"\n"
    send(process, frame(big) + frame(b""))
    assert process.wait(PATIENCE_S) == 0
    assert gang.processes[0].wait(PATIENCE_S) == 0
    assert said(gang) == b"read one\nread " + big + b"over\n"


@pytest.mark.parametrize("sent", [b"", frame(b"o"), frame(b"o")[:3]])
def test_a_submitter_that_goes_ends_the_input(gangs: list[Pods], tmp_path: Path, sent: bytes) -> None:
    gang = started(gangs, tmp_path, ECHOES)
    process = submitter(gang)
    until(lambda: (gang.node(0) / "stdin").exists())
    send(process, sent)
    process.communicate(timeout=PATIENCE_S)
    assert gang.processes[0].wait(PATIENCE_S) == 0
    assert said(gang) == (b"read oover\n" if sent == frame(b"o") else b"over\n")


def test_what_no_rank_reads_is_not_asked_for(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, IDLES)
    process = submitter(gang)
    send(process, frame(b"o"))
    until(lambda: (gang.node(0) / "logs" / "0.out").exists())
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    assert process.stdout.read() is None
    process.kill()
    process.communicate()
    (tmp_path / "go").touch()
    assert gang.processes[0].wait(PATIENCE_S) == 0


def test_only_one_comes(gangs: list[Pods], tmp_path: Path) -> None:
    gang = started(gangs, tmp_path, ECHOES)
    first = submitter(gang)
    send(first, frame(b"o"))
    assert first.stdout is not None and first.stdout.readline() == b"\n"
    _, words = submitter(gang).communicate(timeout=PATIENCE_S)
    assert b"nobody waits for input" in words
    send(first, frame(b"ne\n") + frame(b""))
    assert gang.processes[0].wait(PATIENCE_S) == 0 and said(gang) == b"read one\nover\n"
