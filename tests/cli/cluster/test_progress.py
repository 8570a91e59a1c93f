"""Logs of hosts: whole for what people read, bounded for a host that prints for ever, plain for a terminal."""

from __future__ import annotations

import pty
import re
import sys
from pathlib import Path

import pytest

from longboat.cli.cluster import progress
from longboat.cli.cluster.progress import ProgressTable
from longboat.clusters.apply.step_log import StepEvent


def lines(host: str, *texts: str) -> list[StepEvent]:
    return [StepEvent(host=host, step="packages", state="line", text=text) for text in texts]


def test_a_host_that_prints_for_ever_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST_LOGGED", 1000)
    table = ProgressTable(["a", "b"], "json", tmp_path)
    for event in lines("a", "first", *["x" * 100] * 1000):
        table.listen(event)
    for event in lines("b", "of another host"):
        table.listen(event)
    table.listen(StepEvent(host="a", step="packages", state="failed", text="last"))
    text = (tmp_path / "a.log").read_text()
    assert text.startswith("packages:  first\n") and len(text) < 1200
    assert text.count("is left out") == 1 and text.endswith("packages: failed last\n")
    assert (tmp_path / "b.log").read_text() == "packages:  of another host\n"
    # The log of many commands is begun anew, and the one before is kept.
    (tmp_path / "a.log").write_text("y" * 1001)
    for event in lines("a", "again"):
        ProgressTable(["a"], "json", tmp_path).listen(event)
    assert (tmp_path / "a.log").read_text() == "packages:  again\n"
    assert (tmp_path / "a.log.1").read_text() == "y" * 1001


def test_what_a_host_prints_drives_no_terminal(tmp_path: Path) -> None:
    table = ProgressTable(["a"], "json", tmp_path)
    for event in lines("a", "\x1b]0;owned\x07\x1b[2Jtext\rmore"):
        table.listen(event)
    assert all(sign.isprintable() or sign == "\n" for sign in (tmp_path / "a.log").read_text())


def test_on_a_terminal_hosts_and_steps_are_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as terminal, open(master, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        table = ProgressTable(["cp-1", "gpu-1"], "text", tmp_path)
        for host, step, state in (
            ("cp-1", "packages", "started"), ("gpu-1", "packages", "started"), ("cp-1", "packages", "done"),
            ("cp-1", "init", "started"), ("gpu-1", "packages", "failed"), ("gpu-1", "join", "skipped"),
        ):  # fmt: skip
            table.listen(StepEvent(host=host, step=step, state=state, seconds=12.3))  # type: ignore[arg-type]
        terminal.write("end\n")
        terminal.flush()
        text = b""
        while not text.endswith(b"end\r\n"):
            text += screen.read(4096)
    drawn = re.sub(r"\r|\x1b\[[0-9]*[AK]", "", text.decode()).split("\n")
    assert [line.split() for line in drawn[-5:-2]] == [
        ["HOST", "PACKAGES", "INIT", "JOIN"], ["cp-1", "12", "s", "...", "-"], ["gpu-1", "failed", "-", "-"],
    ]  # fmt: skip
    assert text.count(b"HOST") == 6, "drawn anew with every event"
