"""The environment of a submission in memory: what others put there is not believed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.engines.lifecycle.kept_environment import (
    FOLDER,
    forget_environment,
    keep_environment,
    kept_environment,
    kept_folders,
    session_of,
)

pytestmark = pytest.mark.skipif(not os.path.isdir(FOLDER), reason="no memory with names here")


@pytest.fixture
def uid() -> Iterator[str]:
    name = uuid.uuid4().hex[:12]
    yield name
    forget_environment(name)


def path(uid: str) -> Path:
    return Path(FOLDER) / f"longboat-{uid}.environment"


def test_it_comes_back_as_it_was(uid: str) -> None:
    environment = {"A": "1", "B": "x=y\nz", "EMPTY": "", "BYTES": os.fsdecode(b"\xff")}
    keep_environment(uid, "/runs/a=b", environment)
    assert kept_environment(uid) == environment
    assert (uid, "/runs/a=b") in list(kept_folders())
    forget_environment(uid)
    assert uid not in dict(kept_folders())
    assert kept_environment(uid) is None
    forget_environment(uid)


def test_what_somebody_else_may_have_written_is_not_used(uid: str, tmp_path: Path) -> None:
    keep_environment(uid, "/runs/a", {"A": "1"})
    path(uid).chmod(0o620)
    assert kept_environment(uid) is None
    path(uid).unlink()
    (tmp_path / "own").write_text("LD_PRELOAD=/evil.so")
    (tmp_path / "own").chmod(0o600)
    path(uid).symlink_to(tmp_path / "own")
    assert kept_environment(uid) is None
    keep_environment(uid, "/runs/a", {"A": "2"})
    assert (tmp_path / "own").read_text() == "LD_PRELOAD=/evil.so"
    path(uid).unlink()
    os.mkfifo(path(uid), 0o600)
    assert kept_environment(uid) is None


def test_of_a_file_that_was_cut_nothing_is_used(uid: str) -> None:
    """A full memory, or a kill at the wrong moment: half a PATH, or a secret without its end."""
    keep_environment(uid, "/runs/a", {"A": "1", "PATH": "/usr/local/bin:/usr/bin"})
    whole = path(uid).read_bytes()
    for length in range(len(whole)):
        path(uid).write_bytes(whole[:length])
        assert kept_environment(uid) is None, length


def test_a_file_of_an_earlier_version_has_no_folder(uid: str) -> None:
    path(uid).write_bytes(b"A=1\0B=2\0complete")
    path(uid).chmod(0o600)
    assert kept_environment(uid) == {"A": "1", "B": "2"} and uid not in dict(kept_folders())
    path(uid).chmod(0o640)
    assert uid not in dict(kept_folders())


def test_a_second_name_for_a_file_of_the_user_is_not_believed(uid: str) -> None:
    other = Path(FOLDER) / f"longboat-{uid}-other"
    other.write_bytes(b"A=1\0complete")
    other.chmod(0o600)
    os.link(other, path(uid))
    assert kept_environment(uid) is None
    other.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_another_users_file(uid: str) -> None:
    keep_environment(uid, "/runs/a", {"A": "1"})
    os.chown(path(uid), 65534, 65534)
    assert kept_environment(uid) is None


def test_an_id_that_is_a_path_leads_nowhere() -> None:
    assert kept_environment("../etc/passwd") is None
    forget_environment("../nothing")


def test_of_a_looker_only_the_session() -> None:
    assert session_of({"USER": "u", "HF_TOKEN": "t", "LD_PRELOAD": "x"}) == {"USER": "u"}
