from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from longboat.bundles.manifests import TreeLimits
from longboat.bundles.source import git as asked
from longboat.bundles.source.scan import Scan
from tests.bundles.trees import commit_all, git, make


def test_no_program_of_the_repository_is_run(tmp_path: Path) -> None:
    root = make(tmp_path / "root", {"a.py": "1\n"})
    commit_all(root)
    trap = make(tmp_path, {"trap": f"#!/bin/sh\ntouch {tmp_path}/sprung\n"}) / "trap"
    trap.chmod(0o755)
    (root / ".git/hooks").mkdir(exist_ok=True)
    for hook in ("post-index-change", "pre-commit", "post-checkout"):
        (root / ".git/hooks" / hook).symlink_to(trap)
    git(root, "config", "core.fsmonitor", str(trap))
    git(root, "config", "diff.external", str(trap))
    git(root, "config", "core.pager", str(trap))
    git(root, "config", "diff.t.textconv", str(trap))
    make(root, {"a.py": "2\n", ".gitattributes": "*.py diff=t\n"})
    index = (root / ".git/index").read_bytes()
    assert set(asked.listing(str(root)).tracked) == {"a.py"}
    assert b"+2" in asked.diff(str(root), lambda path: True)
    assert asked.head(str(root))
    assert not (tmp_path / "sprung").exists()
    assert (root / ".git/index").read_bytes() == index


@pytest.mark.parametrize("name", ["evil", "Evil.one", "a=b", "with blank"])
@pytest.mark.parametrize("how", ["clean", "process"])
@pytest.mark.parametrize("where", [".gitattributes", ".git/info/attributes"])
def test_no_filter_of_the_repository_is_run(tmp_path: Path, name: str, how: str, where: str) -> None:
    root = make(tmp_path / "root", {"a.py": "1\n", "b.py": "1\n"})
    commit_all(root)
    trap = make(tmp_path, {"trap": f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n"}) / "trap"
    trap.chmod(0o755)
    attribute = name.split()[0] if " " in name else name
    with open(root / ".git/config", "a") as config:
        config.write(f'[filter "{attribute}"]\n\t{how} = {trap}\n\trequired = true\n')
    make(root, {"a.py": "2\n", where: f"*.py filter={attribute}\n"})
    os.utime(root / "b.py")  # touched: git must compare its content
    try:
        assert b"+2" in asked.diff(str(root), lambda path: True) and "=" not in name
    except asked.GitFailed as error:
        assert "cannot be switched off" in str(error) and "=" in name
    assert set(asked.listing(str(root)).tracked) == {"a.py", "b.py"}
    assert not (tmp_path / "sprung").exists()


def test_no_program_of_a_submodule_is_run(tmp_path: Path) -> None:
    inner = make(tmp_path / "root" / "inner", {"x.py": "1\n"})
    commit_all(inner)
    trap = make(tmp_path, {"trap": f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n"}) / "trap"
    trap.chmod(0o755)
    root = make(tmp_path / "root", {"a.py": "1\n"})
    commit_all(root)  # with the other as a submodule
    git(inner, "config", "filter.evil.clean", str(trap))
    make(inner, {"x.py": "2\n", ".gitattributes": "*.py filter=evil\n"})
    make(root, {"a.py": "2\n"})
    assert b"+2" in asked.diff(str(root), lambda path: True)
    assert not (tmp_path / "sprung").exists()


def test_nothing_is_fetched_for_a_repository_that_lacks_objects(tmp_path: Path) -> None:
    """A partial clone would fetch them from an address of its own, which may name a program."""
    root = make(tmp_path / "root", {"a.py": "1\n"})
    commit_all(root)
    trap = make(tmp_path, {"trap": f"#!/bin/sh\ntouch {tmp_path}/sprung\n"}) / "trap"
    trap.chmod(0o755)
    git(root, "config", "core.repositoryFormatVersion", "1")
    git(root, "config", "extensions.partialClone", "origin")
    git(root, "config", "remote.origin.promisor", "true")
    for setting, value in (("url", f"ext::{trap}"), ("uploadpack", str(trap))):
        git(root, "config", f"remote.origin.{setting}", value)
    git(root, "config", "protocol.ext.allow", "always")
    blob = hashlib.sha1(b"blob 2\x001\n").hexdigest()
    (root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    make(root, {"a.py": "2\n"})
    asked.diff(str(root), lambda path: True)
    assert asked.head(str(root)) and not (tmp_path / "sprung").exists()
    git(root, "config", "remote.origin.url", str(tmp_path))
    asked.diff(str(root), lambda path: True)
    assert not (tmp_path / "sprung").exists()


def test_another_repository_in_the_environment_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a git hook, which sets these."""
    other = make(tmp_path / "other", {"other.py": ""})
    commit_all(other)
    root = make(tmp_path / "root", {"a.py": ""})
    commit_all(root)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert asked.listing(str(root)).tracked == ("a.py",)


def test_without_git_all_files_are_taken_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(tmp_path / "root", {"a.py": "", "b.log": "", ".gitignore": "*.log"})
    commit_all(root)
    monkeypatch.setenv("PATH", str(tmp_path))
    looked = Scan(str(root), limits=TreeLimits())
    assert sorted(looked.files) == [".gitignore", "a.py", "b.log"]
    assert looked.warnings == [
        ".: git cannot be asked, so all files are taken: git cannot be started: No such file or directory"
    ]


def test_a_broken_repository_is_told(tmp_path: Path) -> None:
    root = make(tmp_path / "root", {"a.py": "", ".git": "gitdir: /nowhere\n"})
    looked = Scan(str(root), limits=TreeLimits())
    assert sorted(looked.files) == ["a.py"]
    assert "fatal: not a git repository" in looked.warnings[0]


def test_names_in_a_diff_are_understood(tmp_path: Path) -> None:
    names = ["plain.py", "with blank.py", 'quo"te.py', "new\nline.py", "ü.py", "back\\slash.py", "tab\t.py"]
    root = make(tmp_path / "root", dict.fromkeys(names, "1\n"))
    commit_all(root)
    make(root, dict.fromkeys(names, "2\n"))
    told: list[str] = []
    asked.diff(str(root), lambda path: bool(told.append(path)))
    assert sorted(told) == sorted(names)


def test_a_diff_of_a_folder_names_paths_from_there(tmp_path: Path) -> None:
    root = make(tmp_path / "root", {"sub/a.py": "1\n", "b.py": "1\n"})
    commit_all(root)
    make(root, {"sub/a.py": "2\n", "b.py": "2\n"})
    diff = asked.diff(str(root / "sub"), lambda path: True)
    assert b"diff --git a/a.py b/a.py" in diff
    assert b"b.py b/b.py" not in diff


def test_where_a_repository_is(tmp_path: Path) -> None:
    make(tmp_path / "root", {"sub/deep/a": "", ".git": ""})
    assert asked.in_repository(str(tmp_path / "root/sub/deep"))
    assert asked.in_repository(os.path.realpath("/")) == os.path.lexists("/.git")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give the repository to somebody else")
def test_a_repository_of_somebody_else_is_told_with_what_trusts_it(tmp_path: Path) -> None:
    root = make(tmp_path / "root", {"a.py": ""})
    commit_all(root)
    for path in (root, root / ".git"):
        os.chown(path, 65534, 65534)
    (warning,) = Scan(str(root), limits=TreeLimits()).warnings
    assert "detected dubious ownership" in warning
    assert warning.endswith(f"; git config --global --add safe.directory {root} trusts it")
