"""Links into a working directory, and artifacts out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longboat.bundles.workdir import find_artifacts, link_into, place_in
from longboat.core.errors import EngineError


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return folder


@pytest.mark.parametrize("target", ["data", "a/b/data", "empty", "./data", "inner/data"])
def test_a_folder_appears(tmp_path: Path, target: str) -> None:
    work = make(tmp_path / "work", "train.py", "code/x.py")
    (work / "empty").mkdir()
    (work / "inner").symlink_to("code")
    source = make(tmp_path / "source", "one")
    link_into(str(work), target, str(source))
    assert (work / target / "one").read_text() == "x"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("../data", "outside of the working copy"),
        (".", "outside of the working copy"),
        ("/data", "outside of the working copy"),
        ("train.py", "is part of the code"),
        ("code", "is part of the code"),
        ("outer/data", "behind a link of the code"),
        ("outer/new/data", "behind a link of the code"),
    ],
)
def test_what_is_in_the_way(tmp_path: Path, target: str, words: str) -> None:
    work = make(tmp_path / "work", "train.py", "code/x.py")
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "outer").symlink_to(outside)
    with pytest.raises(EngineError, match=words) as caught:
        link_into(str(work), target, str(tmp_path))
    assert (caught.value.hint is not None) == (words == "is part of the code")
    assert os.listdir(outside) == []


def test_artifacts(tmp_path: Path) -> None:
    work = make(tmp_path / "work [1]", "out/a.txt", "out/deep/b.txt", "log.txt", "secret/x")
    outside = make(tmp_path / "outside", "c.txt")
    (work / "out" / "leaves").symlink_to(outside)
    (work / "out" / "stays").symlink_to("a.txt")
    patterns = ["out/*", "**/*.txt", "/etc/*", "../outside/*", "missing"]
    found = sorted(find_artifacts(str(work), patterns))
    root = os.path.realpath(work)
    names = [name for _, name in found]
    assert sorted(set(names)) == ["log.txt", "out/a.txt", "out/deep", "out/deep/b.txt", "out/stays"]
    assert (f"{root}/out/a.txt", "out/stays") in found


def test_a_place_in_a_folder_is_not_behind_a_link_out_of_it(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "sub").mkdir(parents=True)
    (volume / "inner").symlink_to("sub")
    (volume / "away").symlink_to("/etc")
    (tmp_path / "alias").symlink_to(volume)
    assert place_in(str(volume), "sub/new/deep") == str(volume / "sub" / "new" / "deep")
    assert place_in(str(tmp_path / "alias"), "inner/new") == str(tmp_path / "alias" / "inner" / "new")
    assert place_in(str(volume), ".") == str(volume)
    assert place_in("/", str(volume)) == str(volume)
    for leaving in ("..", "../x", "away", "away/x", "/etc"):
        with pytest.raises(EngineError, match="outside of"):
            place_in(str(volume), leaving)
