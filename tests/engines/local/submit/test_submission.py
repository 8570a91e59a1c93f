"""From a Submission to a run folder: names, checkpoint folders, what is stored."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.errors import NotFound, Refused
from longboat.core.jobs import Checkpoints, Secret
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.submit.submission import (
    checkpoint_dir,
    create_run,
    free_name,
    record_of,
)
from longboat.engines.local.supervise.spawn import supervisor_environment
from longboat.engines.shared.files import open_lock, try_lock
from longboat.engines.shared.home import Home
from tests.engines.local.conftest import LocalJobs
from tests.engines.local.values import job


def submission(tmp_path: Path, name: str = "train", **fields: object) -> Submission:
    made = msgspec.structs.replace(job(), name=name, **fields)
    return Submission(job=made, base=str(tmp_path), environment={"PATH": "/bin", "TOKEN": "s3cret", "RANK": "3"})


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("train", [], "train"),
        ("train", ["train"], "train-2"),
        ("train", ["train", "train-2", "train-4"], "train-3"),
        ("a" * 40, ["a" * 40], "a" * 38 + "-2"),
        ("a" * 37 + "-bc", ["a" * 37 + "-bc"], "a" * 37 + "-2"),
        ("a" * 60, [], "a" * 40),
    ],
)
def test_free_names(tmp_path: Path, name: str, taken: list[str], expected: str) -> None:
    home = Home(tmp_path / "home")
    for other in taken:
        (home.runs / other).mkdir(parents=True)
    assert free_name(home, submission(tmp_path, name)) == expected


def test_a_name_with_checkpoints_is_taken(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (home.root / "checkpoints" / "train").mkdir(parents=True)
    (tmp_path / "here" / "train").mkdir(parents=True)
    assert free_name(home, submission(tmp_path)) == "train-2"
    assert free_name(home, submission(tmp_path, checkpoints=Checkpoints(to="./here"))) == "train-2"
    assert free_name(home, submission(tmp_path, checkpoints=Checkpoints(to="elsewhere"))) == "train"


def test_checkpoint_folders(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for to, expected in ((None, home.root / "checkpoints/r"), ("./c", tmp_path / "c/r"), ("/abs/c", Path("/abs/c/r"))):
        given = submission(tmp_path, checkpoints=Checkpoints(to=to))
        assert checkpoint_dir(home, given, "r") == expected


def test_checkpoints_in_an_object_store_have_a_copy_here(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    given = submission(tmp_path, checkpoints=Checkpoints(to="s3://bucket/team/"))
    record = record_of(home, given, name="r", snapshot=None)
    assert record.checkpoint_dir == str(home.root / "checkpoints/r")
    assert record.checkpoint_store == f"s3://bucket/team/r-{record.uid[:8]}"
    begun = submission(tmp_path, checkpoints=Checkpoints(resume="gs://bucket/old/r-01234567"))
    assert record_of(home, begun, name="r", snapshot=None).resume_from == "gs://bucket/old/r-01234567"
    with pytest.raises(Refused, match="no name of a bucket"):
        record_of(home, submission(tmp_path, checkpoints=Checkpoints(resume="s3://")), name="r", snapshot=None)


def test_a_record_holds_no_secret_and_only_named_variables(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    given = submission(tmp_path, secrets=(Secret(name="TOKEN"), Secret(name="F", file="f")))
    record = record_of(home, given, name="train", snapshot=None)
    assert record.environment == {"PATH": "/bin"}
    assert b"s3cret" not in msgspec.json.encode(record)
    assert record.job.secrets[1].file == str(tmp_path / "f")
    passed = supervisor_environment(record, given.environment)
    assert passed == {"PATH": "/bin", "TOKEN": "s3cret"}


def test_a_run_appears_whole_with_its_lock_held(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    record = record_of(home, submission(tmp_path), name="train", snapshot=None)
    created = create_run(home, record, b"diff")
    assert created is not None
    files, lock = created
    other = open_lock(files.lock)
    assert not try_lock(other)
    assert files.record() == msgspec.structs.replace(record, number=1) and files.state().phase == "pending"
    assert (files.directory / "code.diff").read_bytes() == b"diff"
    assert create_run(home, record, None) is None
    assert [entry.name for entry in home.runs.iterdir()] == ["train"]
    os.close(lock)
    assert try_lock(other)
    os.close(other)


@pytest.mark.parametrize("left", ["", "another-boot 1", "another-boot 900", "garbage\0"])
def test_after_a_restart_the_queue_counts_on(tmp_path: Path, left: str) -> None:
    """The counter is not synced: what an earlier boot left of it may be nothing, or too old."""
    home = Home(tmp_path / "home")
    home.prepare()
    for number in (1, 2, 3):
        created = create_run(home, record_of(home, submission(tmp_path), name=f"run-{number}", snapshot=None), None)
        assert created is not None and created[0].record().number == number
        os.close(created[1])
    (home.root / "queue" / ".next").write_text(left)
    created = create_run(home, record_of(home, submission(tmp_path), name="later", snapshot=None), None)
    assert created is not None
    os.close(created[1])
    assert created[0].record().number == (900 if "900" in left else 4)


def test_resuming_needs_a_complete_checkpoint(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (tmp_path / "old" / "step-1").mkdir(parents=True)
    given = submission(tmp_path, checkpoints=Checkpoints(resume="old"))
    with pytest.raises(NotFound, match="no complete checkpoint"):
        record_of(home, given, name="r", snapshot=None)
    (tmp_path / "old" / "step-1" / ".complete").touch()
    assert record_of(home, given, name="r", snapshot=None).resume_from == str(tmp_path / "old" / "step-1")
    direct = submission(tmp_path, checkpoints=Checkpoints(resume="old/step-1"))
    assert record_of(home, direct, name="r", snapshot=None).resume_from == str(tmp_path / "old" / "step-1")


def test_ctrl_c_while_a_run_is_made_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next command that looks would start it."""
    from longboat.engines.local.engine import LocalEngine
    from longboat.engines.local.submit import submission as module

    def interrupted(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return create_run(*args)

    monkeypatch.setattr(module, "create_run", interrupted)
    engine = LocalEngine(tmp_path / "home")
    with pytest.raises(KeyboardInterrupt):
        engine.submit(submission(tmp_path, "train"))
    assert engine.wait("train", timeout_s=60).phase == "stopped"


def test_checkpoints_in_a_file_or_below_one_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    engine = LocalEngine(tmp_path / "home")
    for to in ("file", "file/deeper"):
        made = job(checkpoints=Checkpoints(to=to), workdir=None)
        with pytest.raises(Refused, match="file is not a folder"):
            engine.plan(Submission(job=made, base=str(tmp_path)))
    assert engine.plan(Submission(job=job(checkpoints=Checkpoints(to="a/b"), workdir=None), base=str(tmp_path)))
    assert not (tmp_path / "a").exists()


def test_spares_are_left_out_with_a_notice(local: LocalJobs) -> None:
    """The same job file runs here, where a node that is lost is started again at once; submitted again it is the same
    run."""
    fields: dict[str, Any] = {"nodes": 2, "spares": 1, "retries": 1, "run_id": "spared"}
    asked = local.submission("import os; print(os.environ['LONGBOAT_NODE_ADDRESSES'].count(','))", **fields)
    assert any("`spares` are for clusters" in notice for notice in local.engine.plan(asked).notices)
    local.engine.submit(asked)
    ended = local.wait("spared")
    assert (ended.phase, ended.nodes, ended.spares) == ("succeeded", 2, ()) and ended.spec is not None
    assert ended.spec.spares == 0 and local.text("spared") == "1\n1\n"
    assert local.engine.submit(asked).uid == ended.uid
