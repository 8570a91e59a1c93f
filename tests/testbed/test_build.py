"""Building: whole or not at all, once, and again after it was killed. A real Go module, the smallest one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import binaries, build
from testbed.binaries import BY_NAME, Target
from testbed.errors import Missing, TestbedError

TOOLS = BY_NAME["tools"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LONGBOAT_TESTBED_RELEASES", "off")
    monkeypatch.delenv("LONGBOAT_TESTBED_BIN", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def go() -> None:
    try:
        build.check_tools(TOOLS)
    except Missing as error:
        pytest.skip(str(error))


@pytest.mark.cluster
def test_built_once_and_working(cache: Path, capfd: pytest.CaptureFixture[str], go: None) -> None:
    programs = binaries.find(["tools"])
    assert "tools: built" in capfd.readouterr().err
    assert programs["pause"].is_relative_to(cache)
    order = {"folder": str(cache), "certificates": [{"name": "a", "authority": "ca", "subject": "s"}]}
    subprocess.run([programs["certificates"]], input=json.dumps(order), text=True, check=True)
    assert {"a.crt", "a.key", "ca.crt", "ca.key"} <= {file.name for file in cache.iterdir()}
    binaries.find(["tools"])
    assert "built" not in capfd.readouterr().err
    assert not list((cache / "binaries").glob(".making-*"))


@pytest.mark.cluster
def test_failed_build_tells_why_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: None
) -> None:
    (tmp_path / "go" / "broken").mkdir(parents=True)
    (tmp_path / "go" / "broken" / "go.mod").write_text("module broken\n\ngo 1.21\n")
    (tmp_path / "go" / "broken" / "main.go").write_text("package main\n\nfunc main() { nonsense }\n")
    monkeypatch.setattr(binaries, "GO_FOLDER", tmp_path / "go")
    with pytest.raises(TestbedError, match="undefined: nonsense"):
        build.make([Target("broken", "broken", {"broken": "."})], quiet=True)
    assert list((cache / "binaries").iterdir()) == []


@pytest.mark.cluster
def test_a_killed_build_is_no_obstacle(cache: Path, tmp_path: Path, go: None) -> None:
    """Killed while `go` runs: the lock is free, the half-made folder goes, the second attempt succeeds."""
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "go").write_text("#!/bin/sh\nexec sleep 600\n")
    (slow / "go").chmod(0o755)
    code = "from testbed import build, binaries; build.make([binaries.BY_NAME['tools']])"
    environment = {**os.environ, "PATH": f"{slow}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not list(cache.glob("binaries/.making-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert list(cache.glob("binaries/.making-*"))
    assert binaries.find(["tools"], quiet=True)["pause"].exists()
    assert not list(cache.glob("binaries/.making-*"))


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(Missing, match="install Go 1.21 or newer"):
        build.check_tools(TOOLS)


def test_flags_are_those_of_the_key() -> None:
    command = build.go_command(BY_NAME["runc"], "go", "github.com/opencontainers/runc", Path("/x/runc"))
    assert command[command.index("-tags") + 1] == "netgo osusergo seccomp"
    assert "-extldflags -static" in command[command.index("-ldflags") + 1]
    assert "-mod=readonly" in command


def test_nvidia_programs_are_linked_with_the_machine_s_own_libraries() -> None:
    command = build.go_command(BY_NAME["nvidia-device-plugin"], "go", "x/cmd/plugin", Path("/x/plugin"))
    flags = command[command.index("-ldflags") + 1]
    assert "-extldflags=-Wl,-z,lazy" in flags and "-static" not in flags
    assert f"internal/info.version=v{binaries.PLUGIN_VERSION}" in flags and "-tags" not in command


@pytest.mark.parametrize(
    ("target", "project", "version"),
    [
        ("nvidia-device-plugin", "k8s-device-plugin", binaries.PLUGIN_VERSION),
        ("nvidia-container-toolkit", "nvidia-container-toolkit", binaries.TOOLKIT_VERSION),
    ],
)
def test_nvidia_programs_tell_the_version_they_are_built_from(target: str, project: str, version: str) -> None:
    module = (binaries.GO_FOLDER / BY_NAME[target].module / "go.mod").read_text()
    assert f"github.com/NVIDIA/{project} v{version}" in module


def test_a_compiler_is_asked_for_and_libseccomp_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "go_program", lambda: "go")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    assert build.check_tools(BY_NAME["nvidia-device-plugin"]) == "go"
    with pytest.raises(Missing, match="install libseccomp-dev"):
        build.check_tools(BY_NAME["runc"])
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    with pytest.raises(Missing, match="install gcc, libc6-dev and pkg-config"):
        build.check_tools(BY_NAME["nvidia-device-plugin"])
