"""A run survives an upgrade of Longboat: its files are replaced while it trains, then it fails, is retried and ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.engines.local.conftest import LocalJobs

SOURCE = Path(__file__).parents[3] / "src" / "longboat"
TRAINER = """
import os, sys, time
print("ready", os.environ["LONGBOAT_ATTEMPT"], flush=True)
go = os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "go-" + os.environ["LONGBOAT_ATTEMPT"])
while not os.path.exists(go):
    time.sleep(0.01)
sys.exit(3 if os.environ["LONGBOAT_ATTEMPT"] == "0" else 0)
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import longboat
from longboat.cli.main import main
assert longboat.__file__.startswith(sys.path[0]), longboat.__file__
sys.exit(main())
"""


def test_a_run_survives_new_files_under_its_supervisor(local: LocalJobs, tmp_path: Path) -> None:
    installed = tmp_path / "installed" / "longboat"
    shutil.copytree(SOURCE, installed, ignore=shutil.ignore_patterns("__pycache__"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAINER)
    environment = {**os.environ, "LONGBOAT_HOME": str(local.home.root), "LONGBOAT_SYNC": "off"}
    packages = os.pathsep.join((str(installed.parent), str(Path(msgspec.__file__).parents[1])))

    def longboat(*arguments: str) -> str:
        command = [sys.executable, "-P", "-c", PROGRAM, str(installed.parent), *arguments]
        done = subprocess.run(
            command, cwd=project, env={**environment, "PYTHONPATH": packages}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    folder = project / "checkpoints"
    options = ("-n", "kept", "--retries", "1", "--nodes", "2", "--checkpoints", str(folder))
    longboat("run", "-d", *options, "train.py")
    local.until_said("kept", "ready 0", times=2)
    shutil.rmtree(installed)
    shutil.copytree(SOURCE, installed, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "kept" / "go-0").touch()
    local.until_said("kept", "ready 1", times=2)
    (folder / "kept" / "go-1").touch()
    longboat("wait", "kept")
    ended = local.engine.status("kept")
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
