"""The example of a sharded checkpoint, with real PyTorch: a drill shows that every part is saved and loaded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.frameworks.conftest import environment, longboat

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sharded"


@pytest.mark.frameworks
@pytest.mark.soak
def test_a_sharded_training_resumes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = environment("torch")
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    project = shutil.copytree(EXAMPLE, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    drilled = longboat("drill", "job.yaml", "--kill", "rank=1@step=12", "-o", "json", cwd=project)
    assert drilled.returncode == 0, drilled.stdout + drilled.stderr
    result = json.loads(drilled.stdout)
    assert result["recoveries"][0]["resumed_from"].endswith("/step-10") and result["compared"] >= 60
    listed = json.loads(longboat("checkpoint", "ls", result["run"], "-o", "json", cwd=project).stdout)
    assert [(entry["step"], entry["files"]) for entry in listed][-1] == (30, 3)  # a part of each rank, and the index
    longboat("rm", "--all", "--yes", "--purge", cwd=project)
