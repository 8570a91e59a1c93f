"""The real command line as a process of its own, in a folder and with a home of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TRAIN = """
import argparse, os, sys

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--fail", type=int)
args = parser.parse_args()
for epoch in range(args.epochs):
    print(f"epoch {epoch}", flush=True)
print("done", file=sys.stderr)
if args.fail == int(os.environ["RANK"]):
    sys.exit(40 + args.fail)
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Longboat:
    """Calls `longboat` in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if name != "LONGBOAT_DEBUG"}

    def popen(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, "-m", "longboat", *args]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **{**streams, **options})

    def __call__(self, *args: str, stdin: str = "", code: int | None = 0) -> Done:
        process = self.popen(*args, stdin=subprocess.PIPE)
        out, err = process.communicate(stdin)
        assert code in (None, process.returncode), f"exit code {process.returncode}\n{out}\n{err}"
        return Done(process.returncode, out, err)


@pytest.fixture
def longboat(home: Path, tmp_path: Path) -> Iterator[Longboat]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    command = Longboat(folder)
    yield command
    command("rm", "--all", "--force", "--yes")
