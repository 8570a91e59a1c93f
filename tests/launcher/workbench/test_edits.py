"""Changed files of a working copy are put aside, with the contents that they had before."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from longboat.launcher.workbench import edits
from longboat.launcher.workbench.edits import REQUEST, EditKeeper


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Copy:
    """A working copy with one file, and what is put aside of it."""

    def __init__(self, folder: Path) -> None:
        self.work, self.artifacts, self.bench = folder / "work", folder / "artifacts", folder / "bench"
        for each in (self.work, self.artifacts, self.bench):
            each.mkdir()
        (self.work / "a.py").write_text("one")
        self.keeper = EditKeeper(str(self.work), str(self.artifacts), str(self.bench))

    def index(self) -> dict[str, Any]:
        path = self.artifacts / "edits" / "edits.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def kept(self, name: str) -> str:
        return (self.artifacts / "edits" / "files" / name).read_text()


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_only_what_changed_with_its_history(copy: Copy) -> None:
    copy.keeper.save()
    assert copy.index() == {}
    (copy.work / "a.py").write_text("two")
    (copy.work / "sub").mkdir()
    (copy.work / "sub" / "new").write_text("new")
    copy.keeper.save()
    assert copy.index() == {
        "a.py": {"sha256": sha("two"), "before": [sha("one")]},
        "sub/new": {"sha256": sha("new"), "before": []},
    }
    (copy.work / "a.py").write_text("three")
    copy.keeper.save()
    assert copy.index()["a.py"] == {"sha256": sha("three"), "before": [sha("one"), sha("two")]}
    assert (copy.kept("a.py"), copy.kept("sub/new")) == ("three", "new")


def test_the_next_attempt_goes_on_where_the_last_one_ended(copy: Copy) -> None:
    (copy.work / "a.py").write_text("two")
    copy.keeper.save()
    (copy.work / "a.py").write_text("one")  # the code of the run, again
    again = EditKeeper(str(copy.work), str(copy.artifacts), str(copy.bench))
    (copy.work / "a.py").write_text("four")
    again.save()
    assert copy.index()["a.py"] == {"sha256": sha("four"), "before": [sha("one"), sha("two")]}


def test_what_is_no_edit_is_left_alone(copy: Copy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(edits, "LARGEST", 10)
    (copy.work / "large").write_text("x" * 11)
    (copy.work / "link").symlink_to(tmp_path)
    (copy.work / "__pycache__").mkdir()
    (copy.work / "__pycache__" / "a.pyc").write_text("x")
    os.utime(copy.work / "a.py", ns=(0, 0))  # touched, and the same
    copy.keeper.save()
    assert copy.index() == {}


def test_a_save_at_once_for_one_who_asks(copy: Copy) -> None:
    (copy.work / "a.py").write_text("two")
    copy.keeper.turn()
    assert copy.index() == {}
    (copy.bench / REQUEST).touch()
    copy.keeper.turn()
    assert copy.index()["a.py"]["sha256"] == sha("two")
    assert not (copy.bench / REQUEST).exists()


def test_one_file_that_cannot_be_kept_keeps_no_other_from_it(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = shutil.copyfile

    def copyfile(source: str, target: str) -> object:
        if source.endswith("bad"):
            raise PermissionError(13, "Permission denied", source)
        return real(source, target)

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    for name in ("bad", "a.py", "z.py"):
        (copy.work / name).write_text("two")
    copy.keeper.save()
    copy.keeper.save()
    assert sorted(copy.index()) == ["a.py", "z.py"]
    assert capsys.readouterr().err.count("'bad' is not kept") == 1


def test_an_index_that_could_not_be_written_is_written_later(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, value: object) -> None:
        raise OSError(28, "No space left on device")

    (copy.work / "a.py").write_text("two")
    with monkeypatch.context() as patch:
        patch.setattr(edits, "write_json", full)
        copy.keeper.save()
    assert copy.index() == {}
    copy.keeper.save()
    assert copy.index()["a.py"]["sha256"] == sha("two")


def test_a_file_that_becomes_a_folder_and_the_reverse(copy: Copy) -> None:
    (copy.work / "thing").write_text("a file")
    (copy.work / "sub").mkdir()
    (copy.work / "sub" / "x").write_text("x")
    copy.keeper.save()
    (copy.work / "thing").unlink()
    (copy.work / "thing").mkdir()
    (copy.work / "thing" / "x").write_text("in a folder")
    (copy.work / "sub" / "x").unlink()
    (copy.work / "sub").rmdir()
    (copy.work / "sub").write_text("a file now")
    copy.keeper.save()
    assert sorted(copy.index()) == ["sub", "thing/x"]
    assert (copy.kept("thing/x"), copy.kept("sub")) == ("in a folder", "a file now")


def test_a_name_that_is_no_text_spoils_no_index(copy: Copy) -> None:
    (copy.work / os.fsdecode(b"\xff")).write_text("x")
    (copy.work / "a.py").write_text("two")
    copy.keeper.save()
    assert list(copy.index()) == ["a.py"]


def test_a_damaged_entry_of_an_earlier_attempt(copy: Copy) -> None:
    (copy.artifacts / "edits").mkdir()
    (copy.artifacts / "edits" / "edits.json").write_text('{"a.py": 1, "b": {"sha256": "x"}}')
    again = EditKeeper(str(copy.work), str(copy.artifacts), str(copy.bench))
    (copy.work / "a.py").write_text("four")
    again.save()
    assert copy.index() == {"a.py": {"sha256": sha("four"), "before": [sha("one")]}}
