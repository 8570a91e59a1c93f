"""containerd that was on a host before: its data stay where they are."""

from __future__ import annotations

import pytest

from longboat.clusters.observe.parse import parse
from longboat.clusters.plan import runtime
from longboat.clusters.plan.steps import Step
from longboat.clusters.spec import SoftwareSource
from tests.clusters.worlds import bare, cluster


def test_data_of_containerd_stay_where_they_are() -> None:
    facts = bare("w-0", containerd_root="/data/containerd", containerd_state="/run/other")
    lines = runtime.configuration(cluster(), facts).splitlines()
    assert lines[:3] == ["version = 3", 'root = "/data/containerd"', 'state = "/run/other"']
    assert "root" not in runtime.configuration(cluster(), bare("w-0"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('root = "/data/containerd"', "/data/containerd"),
        ("  root='/data/containerd'  # big disk", "/data/containerd"),
        ('root = "/data/x\\"\\n[plugins]"', ""),
        ('rootless = "/x"', ""),
    ],
)
def test_only_a_plain_path_is_taken_over(line: str, expected: str) -> None:
    assert parse("h", f"containerd\t{line}\n").containerd_root == expected


@pytest.mark.parametrize(("scheme", "is_held"), [("https", True), ("http", False)])
def test_an_archive_that_is_asked_for_over_https_comes_so_all_the_way(scheme: str, is_held: bool) -> None:
    spec = cluster(source=SoftwareSource(images=f"{scheme}://files.example.org/images.tar"))
    step = runtime.images(spec, spec.hosts[0], bare("cp-0"))
    assert isinstance(step, Step)
    assert ("curl -fsSL --proto '=https' --proto-redir '=https' " in step.script) is is_held
