"""`longboat shell` on this machine: a command where a training would run, files that come back, the run gone after."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.workbench.conftest import Longboat


def test_a_command_in_the_folder_itself(longboat: Longboat, tmp_path: Path) -> None:
    done = longboat("shell", "--", "sh", "-c", "pwd; echo $LONGBOAT_RUN; touch made; exit 7")
    assert (done.returncode, done.stdout) == (7, f"{tmp_path / 'project'}\nshell\n"), done.stderr
    assert (tmp_path / "project" / "made").exists()
    assert "stopped" in longboat("ps", "-a").stdout
    assert longboat("shell", "--", "true").returncode == 0
    assert longboat("ps", "-a", "-o", "name").stdout == "shell\n"  # the first one was tidied up


def test_files_of_a_working_copy_come_back(longboat: Longboat, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir()
    (project / "a.py").write_text("one")
    job = {"name": "cnn", "run": "python a.py", "volumes": {"input": {"path": "./data"}}}
    (project / "job.yaml").write_text(yaml.safe_dump(job))
    done = longboat("shell", "job.yaml", "--", "sh", "-c", "pwd; echo -n two > a.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != str(project)
    assert (project / "a.py").read_text() == "two"
    assert longboat("rm", "cnn-shell").returncode == 0


def test_bad_input(longboat: Longboat, tmp_path: Path) -> None:
    (tmp_path / "project" / "job.yaml").write_text("roles: {ps: {run: a}, worker: {run: b}}\n")
    several = longboat("shell", "job.yaml")
    assert (several.returncode, "several roles" in several.stderr) == (201, True), several.stderr
    lost = longboat("shell", "train-2")
    assert (lost.returncode, "hint: a shell in a run that goes on: longboat exec train-2 -- bash" in lost.stderr) == (
        202,
        True,
    )
    detached = longboat("shell", "-d", "--", "true")
    assert (detached.returncode, "--detach with a command" in detached.stderr) == (201, True)
    closed = longboat("ssh-config", "nix")
    assert (closed.returncode, "no run named" in closed.stderr) == (202, True)
