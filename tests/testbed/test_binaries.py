"""Where programs are found, and when a cache entry is no longer the right one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import binaries, build
from testbed.binaries import BY_NAME, Target
from testbed.errors import TestbedError

TOOLS = BY_NAME["tools"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LONGBOAT_TESTBED_BIN", raising=False)
    return tmp_path / "cache"


def put_programs(folder: Path, target: Target) -> None:
    folder.mkdir(parents=True)
    for program in target.programs:
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)


def test_named_folder_comes_before_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_programs(binaries.cached_folder(TOOLS), TOOLS)
    assert binaries.find(["tools"])["pause"] == binaries.cached_folder(TOOLS) / "pause"
    put_programs(tmp_path / "mine", TOOLS)
    monkeypatch.setenv("LONGBOAT_TESTBED_BIN", str(tmp_path / "mine"))
    assert binaries.find(["tools"])["pause"] == tmp_path / "mine" / "pause"


def test_a_named_folder_that_lacks_a_program_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_programs(binaries.cached_folder(TOOLS), TOOLS)
    put_programs(tmp_path / "mine", TOOLS)
    (tmp_path / "mine" / "pause").chmod(0o644)
    monkeypatch.setenv("LONGBOAT_TESTBED_BIN", str(tmp_path / "mine"))
    assert binaries.find(["tools"])["pause"].parent == binaries.cached_folder(TOOLS)


def test_found_programs_are_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    put_programs(binaries.cached_folder(TOOLS), TOOLS)
    monkeypatch.setattr(build, "make", lambda *_, **__: pytest.fail("built although it was there"))
    assert set(binaries.find(["tools"]).paths) == {"certificates", "pause"}


def test_key_follows_sources_flags_and_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(binaries.GO_FOLDER / "tools", tmp_path / "go" / "tools")
    monkeypatch.setattr(binaries, "GO_FOLDER", tmp_path / "go")
    first = binaries.key_of(TOOLS)
    assert binaries.key_of(TOOLS) == first
    assert binaries.key_of(replace(TOOLS, tags="other")) != first
    (tmp_path / "go" / "tools" / "README").write_text("not part of the build")
    assert binaries.key_of(TOOLS) == first
    (tmp_path / "go" / "tools" / "go.sum").write_text("example.com/x v1.0.0 h1:abc\n")
    assert binaries.key_of(TOOLS) != first


@pytest.mark.parametrize(
    ("name", "version", "minor", "commands"),
    [
        ("kubernetes", binaries.KUBERNETES_VERSION, 36, binaries.KUBERNETES_COMMANDS),
        ("kubernetes-older", binaries.OLDER_VERSION, 29, binaries.OLDER_COMMANDS),
        ("kubernetes-previous", binaries.PREVIOUS_VERSION, 35, binaries.KUBERNETES_COMMANDS),
    ],
)
def test_every_kubernetes_command_is_the_same_program(
    name: str, version: str, minor: int, commands: tuple[str, ...]
) -> None:
    target = BY_NAME[name]
    assert target.programs == commands
    assert f"gitVersion=v{version} " in target.stamps and f"gitMinor={minor} " in target.stamps
    required = (binaries.GO_FOLDER / name / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{version}" in required


def test_the_older_kubernetes_takes_the_place_of_the_newer_and_only_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LONGBOAT_TESTBED_BIN", str(tmp_path / "mine"))
    newer, older = BY_NAME["kubernetes"], BY_NAME["kubernetes-older"]
    for target, folder in ((newer, tmp_path / "mine"), (older, binaries.cached_folder(older))):
        folder.mkdir(parents=True)
        for program in target.programs:
            (folder / program).touch(mode=0o755)
    found = binaries.find(["kubernetes", "kubernetes-older"])
    assert found["kubelet"].parent == binaries.cached_folder(older)
    assert found["kubectl"].parent == tmp_path / "mine"
    assert binaries.find(["kubernetes"])["kubelet"].parent == tmp_path / "mine"
    assert older not in binaries.TARGETS, "it is no part of the usual build"


@pytest.mark.parametrize("module", sorted({target.module for target in BY_NAME.values()}))
def test_modules_are_pinned(module: str) -> None:
    folder = binaries.GO_FOLDER / module
    needs = "require" in (folder / "go.mod").read_text()
    assert not needs or (folder / "go.sum").stat().st_size > 0


def test_unknown_program_is_named() -> None:
    with pytest.raises(TestbedError, match="etcd was not asked for"):
        binaries.Binaries({})["etcd"]
