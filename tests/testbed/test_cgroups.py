"""Control groups of both versions, on folders that look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import cgroups


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    for name in ("cpu", "cpuset", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    return tmp_path


def test_version_1_has_a_group_in_every_tree(version_1: Path) -> None:
    assert [tree.name for tree in cgroups.hierarchies(version_1)] == ["cpu", "cpuset", "unified"]
    cgroups.make("longboat-ab/node-0", version_1)
    assert (version_1 / "cpu/longboat-ab/node-0").is_dir()
    assert (version_1 / "cpuset/longboat-ab/node-0").is_dir()
    assert cgroups.present(version_1) == {"ab"}


def test_a_new_cpuset_takes_its_parents_cores(version_1: Path) -> None:
    group = version_1 / "cpuset" / "longboat-ab"
    group.mkdir()
    (group / "cpuset.cpus").write_text("\n")
    cgroups.inherit_cpuset(group)
    assert (group / "cpuset.cpus").read_text() == "0-1\n"


def test_version_2_lets_children_have_the_controllers(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert cgroups.hierarchies(tmp_path) == [tmp_path]
    cgroups.enable_controllers(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"


def test_remove_takes_the_whole_tree_and_only_that(version_1: Path) -> None:
    cgroups.make("longboat-ab/node-0/kubepods/pod1", version_1)
    cgroups.make("longboat-cd", version_1)
    cgroups.remove("longboat-ab", root=version_1)
    cgroups.remove("longboat-ab", root=version_1)
    assert cgroups.present(version_1) == {"cd"}
