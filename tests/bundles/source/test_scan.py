"""Which files belong to a tree."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from longboat.bundles.manifests import TreeLimits
from longboat.bundles.source.scan import Scan
from longboat.core.errors import BundleError
from tests.bundles.trees import commit_all, git, make


def found(root: Path, *, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), most: int = 1000) -> list[str]:
    return sorted(scan(root, include=include, exclude=exclude, most=most).files)


def scan(root: Path, *, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), most: int = 1000) -> Scan:
    return Scan(os.path.realpath(root), include=include, exclude=exclude, limits=TreeLimits(max_files=most))


TREE = {
    "a.py": "",
    "b.log": "",
    "data/x.bin": "",
    "data/y.bin": "",
    "data/deep/z.bin": "",
    "src/c.py": "",
    "src/d.log": "",
}


def test_all_files_without_git(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".gitignore": "*.log\n"})
    assert found(tmp_path) == sorted([*TREE, ".gitignore"])


def test_git_tracked_and_untracked_but_not_ignored(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".gitignore": "*.log\ndata/\n"})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "a.py", "b.log")
    looked = scan(tmp_path)
    assert sorted(looked.files) == [".gitignore", "a.py", "b.log", "src/c.py"]
    assert sorted(looked.untracked) == [".gitignore", "src/c.py"]


def test_deleted_files_are_gone_and_changed_ones_are_there(tmp_path: Path) -> None:
    make(tmp_path, TREE)
    commit_all(tmp_path)
    (tmp_path / "a.py").unlink()
    shutil.rmtree(tmp_path / "data")
    make(tmp_path, {"data": "now a file"})
    assert found(tmp_path) == ["b.log", "data", "src/c.py", "src/d.log"]


def test_a_folder_inside_a_repository(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".gitignore": "*.log\n"})
    commit_all(tmp_path)
    assert found(tmp_path / "src") == ["c.py"]


def test_a_folder_that_the_repository_above_ignores(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".gitignore": "*\n", "src/new.py": ""})
    git(tmp_path, "init", "-q")
    looked = scan(tmp_path / "src")
    assert sorted(looked.files) == ["c.py", "d.log", "new.py"]
    assert not looked.under_git
    assert looked.warnings == []


def test_ignore_file_leaves_out(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".longboatignore": "data/\n*.log\n", "src/.longboatignore": "!d.log\n"})
    expected = [".longboatignore", "a.py", "src/.longboatignore", "src/c.py", "src/d.log"]
    assert found(tmp_path) == expected
    commit_all(tmp_path)
    assert found(tmp_path) == expected


@pytest.mark.parametrize(
    ("lines", "back"),
    [
        ("!data/x.bin", ["data/x.bin"]),
        ("!/data/x.bin", ["data/x.bin"]),
        ("!data/*.bin", ["data/x.bin", "data/y.bin"]),
        ("!data/", ["data/deep/z.bin", "data/x.bin", "data/y.bin"]),
        ("!data/\ndata/deep", ["data/x.bin", "data/y.bin"]),
        ("!z.bin", ["data/deep/z.bin"]),
        ("!*.log", ["b.log", "src/d.log"]),
        ("!nothing", []),
    ],
)
def test_ignore_file_takes_back_what_git_ignores(tmp_path: Path, lines: str, back: list[str]) -> None:
    make(tmp_path, {**TREE, ".gitignore": "*.log\ndata/\n", ".longboatignore": lines + "\n"})
    commit_all(tmp_path)
    assert found(tmp_path) == sorted([".gitignore", ".longboatignore", "a.py", "src/c.py", *back])


def test_ignore_file_in_a_folder_takes_back(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".gitignore": "*.log\n", "src/.longboatignore": "!*.log\n"})
    commit_all(tmp_path)
    assert "src/d.log" in found(tmp_path)
    assert "b.log" not in found(tmp_path)


def test_job_includes_and_excludes(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".gitignore": "*.log\ndata/\n"})
    commit_all(tmp_path)
    base = [".gitignore", "a.py", "src/c.py"]
    assert found(tmp_path, include=("data/*.bin",)) == sorted([*base, "data/x.bin", "data/y.bin"])
    assert found(tmp_path, include=("data",)) == sorted([*base, "data/deep/z.bin", "data/x.bin", "data/y.bin"])
    assert found(tmp_path, include=("./data/",)) == found(tmp_path, include=("data",))
    assert found(tmp_path, include=("*.log",)) == sorted([*base, "b.log", "src/d.log"])
    assert found(tmp_path, include=("data",), exclude=("deep",)) == sorted([*base, "data/x.bin", "data/y.bin"])
    assert found(tmp_path, exclude=("src/", "*.py")) == [".gitignore"]
    assert found(tmp_path, include=("a.py",), exclude=("*.py",)) == [".gitignore", "a.py"]


def test_job_include_wins_over_the_ignore_file(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".longboatignore": "data/\n"})
    assert "data/deep/z.bin" in found(tmp_path, include=("data/deep/**",))
    assert "data/x.bin" not in found(tmp_path, include=("data/deep/**",))


def test_job_include_that_cannot_be(tmp_path: Path) -> None:
    make(tmp_path, {**TREE, ".git/config": "", "sub/.venv/pyvenv.cfg": "", "sub/.venv/x": ""})
    for text in ("missing.py", "../up", "/etc/passwd", "data/../../x", ".git/config", "sub/.venv/x", ""):
        with pytest.raises(BundleError, match="include"):
            found(tmp_path, include=(text,))
    assert scan(tmp_path, include=("*.nothing",)).warnings[-1] == "include: '*.nothing' matches no file"


def test_what_never_travels(tmp_path: Path) -> None:
    stays = {
        ".git/x": "",
        "sub/.git/x": "",
        "__pycache__/a.pyc": "",
        "src/__pycache__/a.pyc": "",
        "env/pyvenv.cfg": "",
        "env/lib/site.py": "",
        "node_modules/p/x.js": "",
        ".longboat/runs": "",
        ".pytest_cache/v": "",
    }
    make(tmp_path, {**stays, "a.py": "", "src/b.py": ""})
    assert found(tmp_path) == ["a.py", "src/b.py"]
    assert found(tmp_path, include=("*",)) == ["a.py", "src/b.py"]


def test_a_virtual_environment_that_git_does_not_ignore(tmp_path: Path) -> None:
    make(tmp_path, {"a.py": "", "venv/pyvenv.cfg": "", "venv/lib/x.py": "", "venv/bin/python": "->/usr/bin/python3"})
    commit_all(tmp_path)
    assert found(tmp_path) == ["a.py"]


def test_submodules_and_nested_repositories(tmp_path: Path) -> None:
    library = make(tmp_path / "library", {"lib.py": "", "ignored": "", ".gitignore": "ignored\n"})
    commit_all(library)
    root = make(tmp_path / "root", {"a.py": ""})
    commit_all(root)
    git(root, "submodule", "add", "-q", str(library), "third/library")
    commit_all(make(root / "nested", {"n.py": "", "n.log": "", ".gitignore": "*.log"}))
    make(root, {"third/library/new.py": "", "third/library/ignored": ""})
    expected = [".gitmodules", "a.py", "nested/.gitignore", "nested/n.py"]
    expected += [f"third/library/{name}" for name in (".gitignore", "lib.py", "new.py")]
    assert found(root) == sorted(expected)


def test_a_submodule_that_is_not_checked_out(tmp_path: Path) -> None:
    library = make(tmp_path / "library", {"lib.py": ""})
    commit_all(library)
    root = make(tmp_path / "root", {"a.py": ""})
    commit_all(root)
    git(root, "submodule", "add", "-q", str(library), "library")
    commit_all(root)
    git(root, "submodule", "deinit", "-q", "-f", "library")
    looked = scan(root)
    assert sorted(looked.files) == [".gitmodules", "a.py"]
    assert looked.warnings == ["library: this submodule is not checked out, so it is empty in the run"]


def test_a_folder_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    root = make(tmp_path / "root", {"sub/x": "inside"})
    commit_all(root)
    shutil.rmtree(root / "sub")
    make(tmp_path / "outside", {"x": "outside"})
    (root / "sub").symlink_to(tmp_path / "outside")
    assert found(root) == ["sub"]
    assert found(root, include=("sub/*",)) == ["sub"]


def test_special_files_are_skipped_and_named(tmp_path: Path) -> None:
    make(tmp_path, {"a.py": ""})
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        # The name of a socket is short: give it relative to its folder.
        folder = os.open(tmp_path, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{folder}/sock")
        os.close(folder)
    looked = scan(tmp_path)
    assert sorted(looked.files) == ["a.py"]
    assert sorted(looked.warnings) == ["pipe: left out, it is a named pipe", "sock: left out, it is a socket"]


@pytest.mark.parametrize("under_git", [False, True])
def test_a_name_that_is_not_utf8(tmp_path: Path, under_git: bool) -> None:
    make(tmp_path, {"a.py": ""})
    try:
        (tmp_path / os.fsdecode(b"b\xff")).write_text("")
    except OSError:
        pytest.skip("this file system has only UTF-8 names")
    if under_git:
        git(tmp_path, "init", "-q")
    with pytest.raises(BundleError, match=r"b\\xff: the name") as caught:
        found(tmp_path)
    assert caught.value.hint


def test_names_with_newlines_and_quotes_under_git(tmp_path: Path) -> None:
    names = ['a\nb"c.py', "ü ö.py", "-x", " ", "tab\there"]
    make(tmp_path, dict.fromkeys(names, ""))
    commit_all(tmp_path)
    assert found(tmp_path) == sorted(names)


@pytest.mark.parametrize("under_git", [False, True])
def test_looking_ends_early_when_there_are_too_many(tmp_path: Path, under_git: bool) -> None:
    make(tmp_path, {f"data/sub{n % 3}/{n}": "" for n in range(60)})
    make(tmp_path, {"a.py": ""})
    if under_git:
        git(tmp_path, "init", "-q")
    with pytest.raises(BundleError, match=r"more than 50 files: \d+ files in data/") as caught:
        found(tmp_path, most=50)
    assert "add it to .longboatignore or mount it" in str(caught.value.hint)
    assert found(tmp_path, most=50, exclude=("data/",)) == ["a.py"]


def test_many_folders_without_files_end_too(tmp_path: Path) -> None:
    for n in range(30):
        (tmp_path / str(n)).mkdir()
    with pytest.raises(BundleError, match="too many folders"):
        found(tmp_path, most=2)


def test_an_ignore_file_that_is_not_utf8(tmp_path: Path) -> None:
    make(tmp_path, {".longboatignore": b"\xff\n"})
    with pytest.raises(BundleError, match="UTF-8"):
        found(tmp_path)


def test_a_very_deep_tree(tmp_path: Path) -> None:
    deep = "/".join(["d"] * 600)
    make(tmp_path, {f"{deep}/x": ""})
    assert found(tmp_path) == [f"{deep}/x"]


def test_folders_too_deep_for_a_path_are_said(tmp_path: Path) -> None:
    """They were left out without a word."""
    here = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("deep", dir_fd=here)
    inner = os.open("deep", os.O_RDONLY, dir_fd=here)
    for _ in range(45):
        os.mkdir("x" * 100, dir_fd=inner)
        inner, above = os.open("x" * 100, os.O_RDONLY, dir_fd=inner), inner
        os.close(above)
    os.close(inner)
    os.close(here)
    with pytest.raises(BundleError, match=r"^deep/x+\.\.\.: cannot be read: File name too long$") as caught:
        scan(tmp_path)
    assert caught.value.hint == "add deep/ to .longboatignore, or start further below"
    (tmp_path / ".longboatignore").write_text("deep/\n")
    assert found(tmp_path) == [".longboatignore"]
    subprocess.run(["rm", "-r", tmp_path / "deep"], check=True)
