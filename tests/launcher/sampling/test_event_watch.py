"""Event files that ranks write are found and followed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from longboat.launcher.sampling import event_watch
from longboat.launcher.sampling.event_watch import EventWatch
from tests.metrics.test_event_files import DATA, event, record


def test_files_below_the_folders_are_found_and_read_as_they_grow(tmp_path: Path) -> None:
    watch = EventWatch([str(tmp_path)], since=0.0)
    assert watch.take([], 0.0) == []
    folder = tmp_path / "logs" / "train"
    folder.mkdir(parents=True)
    with (folder / "events.out.tfevents.1.host").open("ab") as file:
        file.write(record(event(1, loss=0.5)))
        file.flush()
        assert watch.take([], 0.0, is_last=True) == [[1001.0, "logs/train", 1, {"loss": 0.5}]]
        file.write(record(event(2, loss=float("inf"))))
    assert watch.take([], 0.0) == [[1002.0, "logs/train", 2, {"loss": None}]]
    assert watch.bad == {"loss": 2}


def test_a_file_that_a_rank_has_open_is_found_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with (tmp_path / "events.out.tfevents.2").open("wb") as file:
        file.write(record(event(3, loss=0.25)))
        file.flush()
        rows = EventWatch([str(tmp_path / "work")], since=0.0).take([os.getpid()], 0.0)
    assert [row[2:] for row in rows] == [[3, {"loss": 0.25}]]


def test_files_of_earlier_runs_are_not_ours(tmp_path: Path) -> None:
    shutil.copy(DATA / "torch.tfevents", tmp_path / "events.out.tfevents.old")
    os.utime(tmp_path / "events.out.tfevents.old", (1000, 1000))
    assert EventWatch([str(tmp_path)], since=5000.0).take([], 0.0) == []


def test_points_closer_together_than_asked_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(record(event(n, a=1, b=2)) for n in range(10)))
    watch = EventWatch([str(tmp_path)], since=0.0)
    assert [row[2] for row in watch.take([], 4.0)] == [0, 4, 8]
    assert [row[1:] for row in watch.take([], 4.0, is_last=True)] == [[".", 9, {"a": 1.0}], [".", 9, {"b": 2.0}]]


def test_the_last_numbers_of_a_long_file_are_read_however_much_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_watch, "LAST_BYTES", 1000)
    whole = b"".join(record(event(n, loss=n)) for n in range(2000))
    (tmp_path / "events.out.tfevents.1").write_bytes(whole)
    rows = EventWatch([str(tmp_path)], since=0.0).take([], 0.0, is_last=True)
    assert [row[2] for row in rows[-5:]] == list(range(1995, 2000))
    assert len(rows) < 500, "and what is before them coarsely"


def test_every_file_has_its_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_watch, "BUDGET_S", -1.0)  # it is over before it begins
    for name in "ab":
        (tmp_path / f"{name}.tfevents").write_bytes(record(event(1, **{name: 1})) + record(event(2, **{name: 2})))
    watch = EventWatch([str(tmp_path)], since=0.0)
    assert sorted(str(row[3]) for row in watch.take([], 0.0)) == ["{'a': 1.0}", "{'b': 1.0}"]


def test_the_end_of_a_file_that_is_too_long_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_watch, "LAST_BYTES", 1000)
    monkeypatch.setattr(event_watch, "LAST_BUDGET_S", -1.0)  # the budget is used up by what comes before
    (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(record(event(n, loss=n)) for n in range(30_000)))
    rows = EventWatch([str(tmp_path)], since=0.0).take([], 0.0, is_last=True)
    assert [row[2] for row in rows[-5:]] == list(range(29_995, 30_000))
    assert len(rows) < 100


def test_links_in_a_circle_and_pipes_end_no_sampling(tmp_path: Path) -> None:
    (tmp_path / "loop.tfevents").symlink_to("loop.tfevents")
    (tmp_path / "zero.tfevents").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.tfevents")
    (tmp_path / "good.tfevents").write_bytes(record(event(1, loss=0.5)))
    pipe = os.open(tmp_path / "pipe.tfevents", os.O_RDWR)
    try:
        rows = EventWatch([str(tmp_path)], since=0.0).take([os.getpid()], 0.0)
    finally:
        os.close(pipe)
    assert [row[2:] for row in rows] == [[1, {"loss": 0.5}]]
