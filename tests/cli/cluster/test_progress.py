"""Logs of hosts: whole for what people read, bounded for a host that prints for ever, plain for a terminal."""

from __future__ import annotations

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
