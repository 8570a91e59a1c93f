"""A project's own `queue.py` on PYTHONPATH breaks neither the command line nor the processes it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from longboat.core.guards.own_modules import own_program

SHADOWED = ("json", "signal", "types", "platform", "queue", "click", "msgspec", "logging", "time")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in SHADOWED:
        (folder / f"{name}.py").write_text("raise RuntimeError('not yours')\n")
    (folder / "only_theirs.py").write_text("")
    return folder


def test_own_processes_find_their_own_modules(theirs: Path) -> None:
    program = own_program("import json, platform, msgspec, longboat.core.jobs, only_theirs; print('ok')", first_root=1)
    roots = [root for root in sys.path if root]
    environment = {**os.environ, "PYTHONPATH": f".{os.pathsep}{theirs}"}
    done = subprocess.run(
        [sys.executable, "-c", program, *roots],
        env=environment,
        cwd=theirs,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("how", ["PYTHONPATH", "-m"])
def test_the_command_line_and_a_run(theirs: Path, home: Path, how: str) -> None:
    program = "from longboat.__main__ import main; main()"
    if how == "-m":
        (theirs / "types.py").unlink()  # Python itself needs it before it comes to us
    start = ["-P", "-c", program] if how == "PYTHONPATH" and sys.version_info >= (3, 11) else ["-m", "longboat"]
    environment = {**os.environ, **({"PYTHONPATH": str(theirs)} if how == "PYTHONPATH" else {})}
    command = [sys.executable, *start, "run", "-q", "--", "sh", "-c", 'echo "path=$PYTHONPATH"']
    done = subprocess.run(command, env=environment, cwd=theirs, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if how == "PYTHONPATH":
        assert str(theirs) in done.stdout or "/work" in done.stdout, "ranks have it as it is"
