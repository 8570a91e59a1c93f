"""Runs in the user's own folder: no copy, nothing put into it, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import Refused
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.specs.read import read_job
from tests.engines.local.conftest import LocalJobs


def submission(folder: Path, code: str, **fields: Any) -> Submission:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(code)
    loaded = read_job((), fields={"run": ["python", "train.py"], "name": "job", **fields}, environment={}, cwd=folder)
    return Submission(job=loaded.job, base=str(folder), in_place=True)


def test_it_runs_in_the_folder_itself(local: LocalJobs, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    code = "import os; print(os.getcwd()); print(open('.env').read()); open('made', 'w').write('x')"
    given = submission(folder, code, artifacts=["made"], checkpoints={"to": "kept"})
    (folder / ".env").write_text("A=1")  # never in a copy
    run = local.engine.submit(given)
    run = local.wait(run.name)
    assert (run.phase, local.text(run.name)) == ("succeeded", f"{folder}\nA=1\n")
    assert (local.files(run.name).artifacts / "worker-0" / "made").read_text() == "x"
    local.engine.delete(run.name, purge=True)
    assert sorted(os.listdir(folder)) == [".env", "made", "train.py"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"retries": 1}, "a retry would run whatever the files are by then"),
        ({"data": [{"url": "https://example.org/x", "to": "d"}]}, "imports would be put into your folder"),
        ({"volumes": {"sets": "/mnt/sets"}}, "`volumes.sets` would be put into your folder"),
    ],
)
def test_refusals(local: LocalJobs, tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        local.engine.submit(submission(tmp_path / "project", "", **fields))


def test_a_volume_that_is_there_anyway(tmp_path: Path) -> None:
    given = submission(tmp_path / "project", "", volumes={"sets": "./sets"})
    (tmp_path / "project" / "sets").mkdir()
    assert LocalEngine(tmp_path / "home").plan(given).job.volumes
