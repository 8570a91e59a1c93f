"""The machine's setting is raised once, and set back when nothing of the testbed runs any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed import clusters, processes, settings
from testbed.processes import Launch


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "LIMIT", tmp_path / "limit")
    monkeypatch.setattr(settings, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(settings, "may_change", lambda: True)
    (tmp_path / "limit").write_text("128\n")
    return tmp_path / "limit"


@pytest.fixture
def no_other_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of other tests do not count."""
    ours = clusters.new_id()
    everything = processes.marked
    monkeypatch.setattr(processes, "marked", lambda identity=None: everything(identity or ours))


def test_raised_once_and_set_back(limit: Path, no_other_clusters: None) -> None:
    settings.raise_limit()
    settings.raise_limit()
    assert (limit.read_text(), settings.KEPT.read_text()) == ("4096", "128")
    settings.restore_limit()
    settings.restore_limit()
    assert limit.read_text() == "128" and not settings.KEPT.exists()


def test_kept_up_while_something_runs(limit: Path, tmp_path: Path) -> None:
    settings.raise_limit()
    identity = clusters.new_id()
    environment = {"PATH": os.environ["PATH"], **processes.marks(identity, tmp_path)}
    processes.start(Launch("one", ["sleep", "600"], environment, tmp_path / "log"))
    try:
        settings.restore_limit()
        assert limit.read_text() == "4096"
    finally:
        processes.kill_marked(identity)


def test_a_value_of_somebody_else_is_kept(limit: Path, no_other_clusters: None) -> None:
    settings.raise_limit()
    limit.write_text("9999")
    settings.restore_limit()
    assert limit.read_text() == "9999" and not settings.KEPT.exists()


def test_a_machine_that_has_enough_is_left_alone(limit: Path) -> None:
    limit.write_text("8192")
    settings.raise_limit()
    assert limit.read_text() == "8192" and not settings.KEPT.exists()
