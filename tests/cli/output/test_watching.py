"""`ps --watch`: what counts as a change, and what is written where nobody looks at a terminal."""

from __future__ import annotations

import json
import signal
import subprocess

import msgspec

from longboat.cli.output.watching import changes
from longboat.core.runs import RunStatus
from tests.cli.conftest import Longboat

RUN = RunStatus(name="a", uid="u", job="a", phase="running", engine="local", created=1.0, nodes=1, gpus=0)


def test_changes() -> None:
    other = msgspec.structs.replace(RUN, name="b")
    assert changes({}, [other, RUN]) == [RUN, other]
    assert changes({"a": RUN}, [other, RUN]) == [other]
    ended = msgspec.structs.replace(RUN, phase="succeeded")
    assert changes({"a": RUN, "b": other}, [other, ended]) == [ended]


def test_a_line_for_every_change(longboat: Longboat) -> None:
    longboat("run", "-q", "-n", "first", "--", "true")
    watcher = longboat.popen("ps", "--watch")
    assert watcher.stdout is not None
    assert watcher.stdout.readline().split()[:2] == ["NAME", "PHASE"]
    assert watcher.stdout.readline().split()[:2] == ["first", "succeeded"]
    longboat("rm", "first")
    assert watcher.stdout.readline().split() == ["first", "removed"]
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait() == 130
    watcher.communicate()


def test_json_lines(longboat: Longboat) -> None:
    longboat("run", "-q", "-n", "first", "--", "true")
    watcher = longboat.popen("ps", "-w", "-o", "json", stderr=subprocess.DEVNULL)
    assert watcher.stdout is not None
    assert json.loads(watcher.stdout.readline())["name"] == "first"
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait() == 130
    watcher.communicate()
    assert "--watch with -o yaml" in longboat("ps", "-w", "-o", "yaml", code=201).err
