"""An environment per framework, and a project folder whose job is run with the real command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.frameworks.environments import Unavailable, make

SCRIPTS = Path(__file__).parent / "scripts"
RUN_TIMEOUT_S = 240.0


class Ended(NamedTuple):
    """One attached `longboat run`, ended."""

    exit_code: int
    log: str
    messages: str
    status: dict[str, Any]


RunJob = Callable[[str, str, dict[str, Any]], Ended]


@pytest.fixture
def run_job(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunJob:
    """`run_job(framework, script, job)` runs a script in a project of its own; skips where the framework cannot be."""

    def run(framework: str, script: str, job: dict[str, Any]) -> Ended:
        folder = environment(framework)
        project = tmp_path / "project"
        project.mkdir()
        shutil.copy(SCRIPTS / script, project)
        (project / "job.yaml").write_text(yaml.safe_dump(job))
        monkeypatch.setenv("VIRTUAL_ENV", str(folder))  # the environment is activated
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
        try:
            done = longboat("run", "job.yaml", "--id", "trial", cwd=project)
            status = longboat("status", "trial", "-o", "json", cwd=project)
            assert status.returncode == 0, done.stderr + status.stderr
        finally:  # also when it hung
            longboat("rm", "trial", "--force", "--yes", cwd=project)
        return Ended(done.returncode, done.stdout, done.stderr, json.loads(status.stdout))

    return run


def environment(framework: str) -> Path:
    if framework == "mpi" and not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed: apt-get install openmpi-bin")
    try:
        return make(framework)
    except Unavailable as reason:
        pytest.skip(str(reason))


def longboat(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).parent / "longboat")
    return subprocess.run(
        [program, *words], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_TIMEOUT_S
    )
