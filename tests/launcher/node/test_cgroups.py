"""Memory of the control group, from files as both versions have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.launcher.node import cgroups


def group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


V2 = {"memory.max": "1073741824\n", "memory.peak": "1000000\n", "memory.events": "low 0\noom 2\noom_kill 3\n"}
V1 = {
    "memory.limit_in_bytes": "536870912\n",
    "memory.max_usage_in_bytes": "2000000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
}


@pytest.mark.parametrize("path", ["/", "/kubepods/pod1/abc"])
def test_version_2_in_a_container_and_outside(tmp_path: Path, path: str) -> None:
    (tmp_path / "own").write_text(f"0::{path}\n")
    group(tmp_path / "fs" / path.strip("/"), V2)
    found = cgroups.find(str(tmp_path / "own"), str(tmp_path / "fs"))
    assert (cgroups.limit(found), cgroups.peak(found), cgroups.kills(found)) == (1 << 30, 1000000, 3)


@pytest.mark.parametrize("folder", ["memory", "memory/kubepods/pod1"])
def test_version_1_in_a_container_and_outside(tmp_path: Path, folder: str) -> None:
    (tmp_path / "own").write_text("12:cpu,cpuacct:/x\n9:memory:/kubepods/pod1\n0::/\n")
    group(tmp_path / "fs" / folder, V1)
    found = cgroups.find(str(tmp_path / "own"), str(tmp_path / "fs"))
    assert (cgroups.limit(found), cgroups.peak(found), cgroups.kills(found)) == (512 << 20, 2000000, 4)


def test_no_limit(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n")
    group(tmp_path / "fs", {**V2, "memory.max": "max\n"})
    found = cgroups.find(str(tmp_path / "own"), str(tmp_path / "fs"))
    assert found is not None and cgroups.limit(found) is None
    group(tmp_path / "fs1" / "memory", {**V1, "memory.limit_in_bytes": str((1 << 63) - 4096)})
    (tmp_path / "own").write_text("9:memory:/\n")
    assert cgroups.limit(cgroups.find(str(tmp_path / "own"), str(tmp_path / "fs1"))) is None


def test_no_control_group(tmp_path: Path) -> None:
    assert cgroups.find(str(tmp_path / "none"), str(tmp_path)) is None
    (tmp_path / "own").write_text("odd\n\n0::/\n")
    assert cgroups.find(str(tmp_path / "own"), str(tmp_path)) is None
    assert (cgroups.kills(None), cgroups.limit(None), cgroups.peak(None)) == (0, None, None)
