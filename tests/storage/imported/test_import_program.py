"""Imports of a folder by their markers: listed, checked, removed, with what others left there."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from longboat.core.jobs import DataImport
from longboat.storage.data import import_data
from longboat.storage.imported import import_program
from longboat.storage.imported.import_program import check, drop, imports


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume with an archive that is unpacked, and a file that is not."""
    for name, text in (("a.txt", "a" * 10), ("more/b.txt", "b" * 20)):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(text)
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(tmp_path / "source/a.txt", "a.txt")
        tar.add(tmp_path / "source/more", "more")
    (tmp_path / "words.txt").write_text("words")
    volume = tmp_path / "volume"
    assert import_data(DataImport(url=f"file://{tmp_path}/set.tar", to=""), volume / "sets/one")
    assert import_data(DataImport(url=f"file://{tmp_path}/words.txt", to=""), volume)
    return volume


def test_they_are_listed_with_where_from_and_how_much(volume: Path, tmp_path: Path) -> None:
    words, one = imports(str(volume))
    assert (one["folder"], one["names"], one["files"], one["bytes"]) == ("sets/one", ["a.txt", "more"], 2, 30)
    assert one["url"] == f"file://{tmp_path}/set.tar" and one["is_there"] and one["tag"] and not one["is_secret"]
    assert (words["folder"], words["names"], words["size"]) == (".", ["words.txt"], 5)
    (volume / "words.txt").unlink()
    assert [each["is_there"] for each in imports(str(volume))] == [False, True]


def test_what_is_not_as_it_was_is_told(volume: Path) -> None:
    words, one = imports(str(volume))
    for each in (words, one):
        assert check(str(volume), each["folder"], each["key"])["trouble"] == ""
    (volume / "words.txt").write_text("other")
    assert "words.txt is another file now" in check(str(volume), ".", words["key"])["trouble"]
    (volume / "sets/one/more/b.txt").write_text("b")
    trouble = check(str(volume), "sets/one", one["key"])["trouble"]
    assert trouble == "2 files of 11 bytes are there, and 2 of 30 bytes were imported"
    (volume / "sets/one/a.txt").unlink()
    assert check(str(volume), "sets/one", one["key"])["trouble"] == "a.txt is not there"


def test_removed_is_what_no_other_import_has(volume: Path, tmp_path: Path) -> None:
    folder = volume / "sets/one"
    import_data(DataImport(url=f"file://{tmp_path}/source/a.txt", to=""), folder)
    (folder / "mine.txt").write_text("of somebody else")
    one = next(each for each in imports(str(volume)) if "more" in each["names"])
    assert drop(str(volume), "sets/one", one["key"]) == {"removed": ["more"]}
    assert sorted(path.name for path in folder.iterdir()) == [".longboat", "a.txt", "mine.txt"]
    assert import_data(DataImport(url=f"file://{tmp_path}/set.tar", to=""), folder), "it is fetched again"


def test_one_that_is_being_imported_stays(volume: Path) -> None:
    words = imports(str(volume))[0]
    with open(volume / ".longboat" / f"{words['key']}.lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="is being imported at this moment"):
            drop(str(volume), ".", words["key"])
    assert (volume / "words.txt").exists()


def test_nothing_leads_out_of_the_volume(volume: Path, tmp_path: Path) -> None:
    key = imports(str(volume))[0]["key"]
    marker = volume / ".longboat" / f"{key}.json"
    marker.write_text(json.dumps({"names": ["../outside"]}))
    (tmp_path / "outside").write_text("x")
    assert [each["folder"] for each in imports(str(volume))] == ["sets/one"]
    with pytest.raises(FileNotFoundError):
        drop(str(volume), ".", key)
    (volume / "away").symlink_to(tmp_path)
    import_data(DataImport(url=f"file://{tmp_path}/words.txt", to=""), tmp_path / "other")
    other = imports(str(tmp_path / "other"))[0]["key"]
    with pytest.raises(ValueError, match="leads out of the volume"):
        drop(str(volume), "away/other", other)
    with pytest.raises(FileNotFoundError):
        drop(str(volume), ".", "../../x")
    assert (tmp_path / "outside").exists()


def test_as_a_program_of_its_own(volume: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-I", "-S", import_program.__file__, *words]
        return subprocess.run(command, capture_output=True, check=False)

    assert len(json.loads(run("imports", str(volume)).stdout)) == 2
    missing = run("imports", f"{volume}/none")
    assert missing.returncode == 44 and b"No such file" in missing.stderr
    assert run("check", str(volume), ".", "0" * 24).returncode == 44
