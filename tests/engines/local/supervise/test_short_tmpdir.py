"""A short TMPDIR: sockets fit below it, nobody else can stand in its place, and nothing of it stays."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.engines.local.supervise.short_tmpdir import SHORT, forget, short_path

HOME = Path("/" + "h" * SHORT)
"""Longer than would help."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / ("a-long-name-of-a-run-" * 5) / "attempts" / "0" / "worker-0" / "scratch"
    folder.mkdir(parents=True)
    return folder


def test_a_unix_socket_fits_into_the_short_tmpdir(temporary: Path, scratch: Path) -> None:
    short = short_path(scratch, HOME)
    assert len(str(short)) <= SHORT and short == short_path(scratch, HOME), "a second supervisor finds the same"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "pymp-abcdefgh-listener-abcdefgh-and-27-bytes-more"))
    forget(scratch, HOME)
    assert not list(temporary.iterdir()) and scratch.is_dir()


def test_a_short_one_stays_as_it_is(temporary: Path) -> None:
    assert short_path(temporary, HOME) == temporary
    forget(temporary, HOME)
    assert temporary.is_dir()


@pytest.mark.parametrize("planted", ["open folder", "link", "file", "link of another folder"])
def test_what_others_put_there_is_not_used(planted: str, temporary: Path, scratch: Path, tmp_path: Path) -> None:
    link = short_path(scratch, HOME)
    forget(scratch, HOME)
    if planted == "open folder":
        link.parent.mkdir()
        link.parent.chmod(0o777)
    elif planted == "link":
        link.parent.symlink_to(tmp_path)
    elif planted == "file":
        link.parent.touch()
    else:
        link.parent.mkdir(mode=0o700)
        link.symlink_to(tmp_path)
    assert short_path(scratch, HOME) == scratch


def test_links_of_removed_runs_go(temporary: Path, scratch: Path, tmp_path: Path) -> None:
    gone = tmp_path / ("b" * 60)
    gone.mkdir()
    old = short_path(gone, HOME)
    gone.rmdir()
    new = short_path(scratch, HOME)
    assert sorted(new.parent.iterdir()) == [new] and not os.path.lexists(old)


def test_the_short_tmpdir_is_below_a_short_home(temporary: Path, scratch: Path) -> None:
    short = short_path(scratch, temporary)
    assert short.parent == temporary / "t" and short.parent.stat().st_mode & 0o077 == 0
    forget(scratch, temporary)
    assert not list(temporary.iterdir())
