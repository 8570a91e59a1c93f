"""The containers of an attempt, as commands, and what they have of this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longboat.engines.engine import Submission
from longboat.engines.local.containers import attempt
from longboat.engines.local.containers.attempt import AttemptContainers
from longboat.engines.local.containers.choice import ContainerChoice, hidden_links
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.submit.preparation import PreparedSubmission, take_code
from longboat.engines.shared.home import Home
from tests.engines.local.values import job


def test_links_out_of_the_code_hide_nothing_of_the_image(tmp_path: Path) -> None:
    outside = {"tools": "/usr/bin", "lib": "/usr/lib/python3", "all": "/", "data": str(tmp_path)}
    record = LocalRecord(
        name="run", uid="feed", job=job(), base="/", created=0.0, user="me", outside=outside, containers="podman"
    )
    targets = [mount.target for mount in AttemptContainers(record, RunFiles(tmp_path / "run"), 0)._mounts([])]
    assert str(tmp_path) in targets
    assert not {"/usr/bin", "/usr/lib/python3", "/"} & set(targets)


def test_a_checkpoint_in_the_runs_own_folder_is_no_mount_of_its_own(tmp_path: Path) -> None:
    """It would be busy, and a newer checkpoint of the same step could not take its place."""
    (tmp_path / "kept" / "step-5").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kept" / "link").symlink_to(tmp_path / "elsewhere")
    paths = [str(tmp_path / name) for name in ("kept", "kept/step-5", "kept/link", "kept-too")]
    assert attempt.outermost([*paths, paths[0]]) == [paths[0], paths[2], paths[3]]


@pytest.mark.parametrize("target", ["/", "/usr", "/usr/bin", "/etc/ssl", "/lib64", "/proc/1", "/dev/shm", "/opt"])
def test_folders_of_the_image(target: str) -> None:
    assert hidden_links({"a": target, "b": "/mnt/x"}) == {"a": target}


@pytest.mark.parametrize("target", ["/home/me", "/opt/data", "/usrdata", "/data", "/libs", "/tmp/x", "/var/lib/data"])
def test_folders_of_the_user(target: str) -> None:
    assert hidden_links({"a": target}) == {}


@pytest.mark.parametrize("program", ["podman", None])
def test_links_out_of_the_code_are_reported_for_containers(tmp_path: Path, program: str | None) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "tools").symlink_to("/usr/bin")
    submission = Submission(job=job(workdir="."), base=str(tmp_path / "code"))
    containers = ContainerChoice(program=program)
    told: list[str] = []
    prepared = PreparedSubmission(submission=submission, notices=[], containers=containers)
    snapshot, _ = take_code(Home(tmp_path / "home"), prepared, told.append)
    assert snapshot is not None and list(snapshot.outside) == ["tools"]
    assert [text for text in told if "tools -> /usr/bin" in text] == told and len(told) == (program is not None)


def test_who_the_user_is_is_asked_once_for_all_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(attempt, "user_of", lambda program: asked.append(program) or "7:7")
    monkeypatch.setattr(attempt, "program_path", lambda program, _environment: f"/bin/{program}")
    job = SimpleNamespace(role=lambda _name: SimpleNamespace(image="i"), roles=(), volumes=())
    own = {"in_place": None, "outside": {}, "mounts": {}, "checkpoint_store": None, "checkpoint_dir": str(tmp_path)}
    record: Any = SimpleNamespace(containers="docker", job=job, name="r", uid="00aa", **own)
    files: Any = SimpleNamespace(directory=tmp_path)
    layout = SimpleNamespace(role="worker")
    nodes: Any = [
        SimpleNamespace(name=f"worker-{n}", layout=layout, directory=tmp_path, plan=tmp_path / "plan.json")
        for n in range(3)
    ]
    containers = attempt.AttemptContainers(record, files, 0)
    containers._images["i"] = "sha256:0"
    starts = containers.starts(nodes, [(), (), ()], (), {})
    assert asked == ["docker"]
    assert ["--user=7:7" in start.command for start in starts.values()] == [True] * 3
