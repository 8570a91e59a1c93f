"""The real programs, on PATH; the command line; a way to ask a server."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frameworks.conftest import environment

COMMAND_TIMEOUT_S = 120.0
Longboat = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Path:
    """TensorBoard and JupyterLab, as in an activated environment."""
    folder = environment("workbench")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def longboat(home: Path, tmp_path: Path) -> Iterator[Longboat]:
    """The command line in a project of its own; whatever it left running is removed."""
    project = tmp_path / "project"
    project.mkdir()

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        program = [str(Path(sys.executable).parent / "longboat"), *words]
        return subprocess.run(
            program, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
        )

    yield call
    names = call("ps", "-a", "-o", "name").stdout.split()
    if names:
        call("rm", "--force", "--yes", *names)


def fetch(url: str, *, token: str = "") -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())
