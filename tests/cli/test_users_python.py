"""Ranks run the programs of the user's own PATH, wherever Longboat itself is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LONGBOAT = Path(sys.executable).parent / "longboat"


@pytest.fixture
def own_python(tmp_path: Path) -> Path:
    """A folder with a `python3` that says that it is the user's, then does as Python does."""
    folder = tmp_path / "own"
    folder.mkdir()
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\necho "the user\'s python3"\nexec {os.path.realpath(sys.executable)} "$@"\n')
    program.chmod(0o755)
    return folder


def run(tmp_path: Path, path: str, *command: str) -> str:
    environment = {**os.environ, "PATH": path, "LONGBOAT_HOME": str(tmp_path / "home")}
    environment.pop("VIRTUAL_ENV", None)
    (tmp_path / "code").mkdir(exist_ok=True)
    ended = subprocess.run(
        [LONGBOAT, "run", "--", *command],
        cwd=tmp_path / "code", env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_python3_is_that_of_the_users_path(tmp_path: Path, own_python: Path) -> None:
    out = run(tmp_path, f"{own_python}:/usr/bin:/bin", "python3", "-c", "import longboat; print(longboat.__file__)")
    assert "the user's python3" in out
    assert "/python/longboat/__init__.py" in out, "trainers import `longboat` whatever Python they run under"


def test_python_where_there_is_only_python3_is_that_of_the_users_path(tmp_path: Path, own_python: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "env"):
        (tools / name).symlink_to(f"/bin/{name}")
    assert "the user's python3" in run(tmp_path, f"{own_python}:{tools}", "python", "-c", "print(1)")


def test_the_order_of_the_users_path_is_kept(tmp_path: Path, own_python: Path) -> None:
    path = f"{own_python}:/usr/bin:/bin"
    out = run(tmp_path, path, "sh", "-c", "echo $PATH")
    assert out.strip().split(" ")[-1].startswith(path)
