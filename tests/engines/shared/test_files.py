"""Files written whole, read leniently, locked, removed."""

from __future__ import annotations

import errno
import io
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.records import LocalState
from longboat.engines.shared import files
from longboat.engines.shared.files import (
    copy,
    disk,
    find_program,
    locked,
    log_line,
    new_lock,
    open_lock,
    read_value,
    remove_abandoned,
    remove_free_locks,
    remove_tree,
    take_lock,
    try_lock,
    write_bytes,
    write_value,
)


def test_a_file_is_the_owners_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    old = os.umask(0)
    try:
        write_value(path, LocalState(reason="x"))
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_value(path, LocalState) == LocalState(reason="x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["value.json"]


def test_a_log_on_a_full_disk_ends_nobody(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    log_line("said")
    assert capsys.readouterr().err == "said\n"
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr("sys.stderr", io.TextIOWrapper(full, write_through=True))
        for _ in range(2):
            log_line("lost")
        monkeypatch.undo()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "value"
    write_bytes(path, b"old")
    (tmp_path / f"value.{os.getpid()}.tmp").mkdir()
    with pytest.raises(EngineError, match="cannot write"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"phase": "flying"}', b"\xff", b'{"attempt": "x"}'])
def test_a_damaged_file_counts_as_not_written(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(data)
    assert read_value(path, LocalState) is None


def test_missing_is_none_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    assert read_value(tmp_path / "nothing", LocalState) is None
    (tmp_path / "new.json").write_text('{"phase": "running", "of_a_later_version": {"a": 1}}')
    read = read_value(tmp_path / "new.json", LocalState)
    assert read is not None and read.phase == "running"


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "free some space"), (errno.EROFS, "LONGBOAT_HOME"), (errno.EDQUOT, "quota"), (errno.EIO, "")],
)
def test_disk_errors_say_what_was_done_and_what_to_do(number: int, hint: str) -> None:
    with pytest.raises(EngineError) as caught, disk("write the moon"):
        raise OSError(number, "text")
    assert caught.value.message == f"cannot write the moon: {os.strerror(number)}"
    assert hint in (caught.value.hint or "")


def test_what_is_copied_elsewhere_has_nothing_to_do_with_the_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=f"cannot copy {tmp_path}/file to .*: Not a directory") as caught:
        copy(tmp_path / "file", tmp_path / "file" / "below" / "x")
    assert caught.value.hint is None
    with pytest.raises(EngineError) as caught, disk("write the kubeconfig", is_home=False):
        raise PermissionError(errno.EACCES, "text")
    assert caught.value.hint is None


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    one, two = open_lock(tmp_path / "lock"), open_lock(tmp_path / "lock")
    assert try_lock(one) and not try_lock(two)
    os.close(one)
    assert try_lock(two)
    os.close(two)
    with locked(tmp_path / "lock"):
        three = open_lock(tmp_path / "lock")
        assert not try_lock(three)
        os.close(three)


def test_everything_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "deep" / "er" / "file").write_text("x")
    (tree / "link").symlink_to(outside)
    os.mkfifo(tree / "pipe")
    os.chmod(tree / "deep" / "er", 0o500)
    os.chmod(tree / "deep", 0)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "precious").exists()
    remove_tree(tree)
    (tmp_path / "alias").symlink_to(outside)
    remove_tree(tmp_path / "alias")
    assert (outside / "precious").exists() and not (tmp_path / "alias").is_symlink()


def test_drafts_go_unless_somebody_holds_their_lock_or_may_not_have_it_yet(tmp_path: Path) -> None:
    for name in (".new-killed", ".new-without", ".new-held", ".new-before-its-lock", ".new-making-it", "service"):
        (tmp_path / name / "versions").mkdir(parents=True)
    locks = [new_lock(tmp_path / name / "x.lock") for name in (".new-killed", ".new-held")]
    os.close(locks[0])
    open_lock(tmp_path / ".new-making-it" / ".x.lock")
    os.utime(tmp_path / ".new-without", (1, 1))
    os.utime(tmp_path / ".new-held", (1, 1))
    remove_abandoned(tmp_path)
    os.close(locks[1])
    kept = [".new-before-its-lock", ".new-held", ".new-making-it", "service"]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    remove_abandoned(tmp_path / "nowhere")


def test_a_program_is_found_as_shutil_finds_it(tmp_path: Path) -> None:
    for name, mode in (("plain", 0o644), ("program", 0o755)):
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / name).write_text("#!/bin/sh\n")
            (tmp_path / folder / name).chmod(mode)
    (tmp_path / "c" / "program").mkdir(parents=True)
    path = os.pathsep.join(str(tmp_path / folder) for folder in ("nowhere", "c", "b", "a"))
    for name in ("program", "plain", "missing"):
        assert find_program(name, path) == shutil.which(name, path=path), name


def test_a_lock_that_nobody_holds_is_removed_and_one_that_is_held_stays(tmp_path: Path) -> None:
    held = take_lock(tmp_path / "held")
    assert held is not None and take_lock(tmp_path / "held") is None
    child = os.dup(held)  # as a launcher inherits it
    (tmp_path / "left").touch()  # by a process that was killed
    (tmp_path / "elsewhere").symlink_to(tmp_path / "held")
    os.close(held)
    remove_free_locks(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"held", "elsewhere"}
    os.close(child)
    remove_free_locks(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["elsewhere"]
    remove_free_locks(tmp_path / "nowhere")


def test_a_lock_that_is_removed_while_it_is_opened_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def removed_meanwhile(descriptor: int) -> bool:
        (tmp_path / "block").unlink()
        return try_lock(descriptor)

    monkeypatch.setattr(files, "try_lock", removed_meanwhile)
    assert take_lock(tmp_path / "block") is None


def test_no_two_have_the_same_lock_while_others_are_removed(tmp_path: Path) -> None:
    having: set[str] = set()
    twice: list[str] = []

    def take_and_give_back(number: int) -> None:
        for turn in range(300):
            name = str((number + turn) % 3)
            descriptor = take_lock(tmp_path / name)
            if descriptor is not None:
                if name in having:
                    twice.append(name)
                having.add(name)
                time.sleep(0)
                having.discard(name)
                os.close(descriptor)
            remove_free_locks(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take_and_give_back, range(8)))
    assert twice == [] and list(tmp_path.iterdir()) == []
