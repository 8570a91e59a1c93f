"""containerd that was on a host before: its data stay where they are."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from longboat.clusters.addons.released import JOBSET
from longboat.clusters.observe.parse import parse
from longboat.clusters.offline.addon_files import archive_references
from longboat.clusters.plan import runtime
from longboat.clusters.plan.host_plan import assemble
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.steps import Kept, Step
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


SUM = hashlib.sha256(b"images").hexdigest()


@pytest.mark.parametrize(("content", "is_imported"), [("images", True), ("images of somebody in between", False)])
def test_a_host_imports_no_archive_with_another_checksum(tmp_path: Path, content: str, is_imported: bool) -> None:
    """curl and ctr are stand-ins."""
    spec = cluster(source=SoftwareSource(images=f"http://files.example.org/images.tar#sha256={SUM}"))
    step = runtime.images(spec, spec.hosts[0], bare("cp-0"))
    assert isinstance(step, Step) and SUM not in step.title
    (tmp_path / "curl").write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nprintf "{content}" > "$2"\n')
    (tmp_path / "ctr").write_text(f"#!/bin/sh\ncat > {tmp_path}/imported\n")
    for name in ("curl", "ctr"):
        (tmp_path / name).chmod(0o755)
    prelude = PRELUDE.replace("LB=/var/lib/longboat", f"LB={tmp_path}").replace("PATH=/usr", f"PATH={tmp_path}:/usr")
    done = subprocess.run(["sh", "-c", prelude + step.script], capture_output=True, text=True, check=False)
    assert (done.returncode == 0, (tmp_path / "imported").exists()) == (is_imported, is_imported), done.stderr
    assert is_imported or "its checksum is another one" in done.stderr
    assert not (tmp_path / "images.tar").exists()


def test_an_add_on_that_comes_later_brings_the_archive_again_and_once_only() -> None:
    source = SoftwareSource(images="https://files.example.org/images.tar")
    first = cluster(source=source)
    there = ("registry.k8s.io/pause:3.10.2", f"registry.k8s.io/kube-proxy:v{first.versions.kubernetes}")
    facts = bare("w-0", images=there)
    assert isinstance(runtime.images(first, first.hosts[1], facts, archive_references(first)), Kept)
    later = cluster(source=source, addons=("jobset", "controller"), image="example.org/longboat:1")
    step = runtime.images(later, later.hosts[1], facts, archive_references(later))
    assert isinstance(step, Step) and "pinned" not in step.script
    plan = assemble("w-0", [step], bare("w-0", images=there, done=(("images", step.key),)))
    assert plan.steps == () and [kept.reason for kept in plan.kept] == ["done before"]
    # Pulled, or imported by hand: there is nothing to bring.
    complete = bare("w-0", images=(*there, *JOBSET.images, "example.org/longboat:1"))
    assert isinstance(runtime.images(later, later.hosts[1], complete, archive_references(later)), Kept)


def test_images_of_a_manifest_of_ones_own_are_not_known_so_the_archive_is_brought() -> None:
    source = SoftwareSource(images="/srv/images.tar")
    spec = cluster(source=source, addons=("jobset",), manifests=(("jobset", "/srv/jobset.yaml"),))
    facts = bare("w-0", images=("registry.k8s.io/pause:3.10.2", "registry.k8s.io/kube-proxy:v1.36.4"))
    step = runtime.images(spec, spec.hosts[1], facts, archive_references(spec))
    assert isinstance(step, Step) and "label" not in step.script
