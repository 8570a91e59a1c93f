"""What a manifest may say, and which clusters and hosts a bundle is for."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from longboat.clusters.offline.manifest import check_manifest, encode_manifest, host_problems, read_manifest
from longboat.clusters.spec import Network, Versions
from longboat.core.errors import BundleError, Refused
from tests.clusters.offline.bundles import write_folder
from tests.clusters.worlds import bare, cluster


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = write_folder(tmp_path)
    assert read_manifest(encode_manifest(manifest), "x") == manifest


@pytest.mark.parametrize(
    "path", ["../etc/passwd", "/etc/passwd", "packages/../x", "packages/a b", "packages/$(reboot)", "packages/a\nb", ""]
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    fields = json.loads(encode_manifest(write_folder(tmp_path)))
    fields["files"][0]["path"] = path
    with pytest.raises(BundleError, match="lists a file that no bundle has"):
        read_manifest(json.dumps(fields).encode(), "lab.tar")


@pytest.mark.parametrize("name", ["a b", "-x", "a\n$(reboot)", ""])
def test_an_image_with_an_odd_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="an image with an odd name"):
        read_manifest(encode_manifest(write_folder(tmp_path, images=(name,))), "lab.tar")


def test_a_later_format_is_told(tmp_path: Path) -> None:
    fields = json.loads(encode_manifest(write_folder(tmp_path)))
    with pytest.raises(BundleError, match="a bundle of format 2; this Longboat reads format 1"):
        read_manifest(json.dumps({**fields, "format": 2, "files": "new"}).encode(), "lab.tar")
    for text in (b"", b"[]", b"{}", b"\xff", json.dumps({**fields, "images": 3}).encode()):
        with pytest.raises(BundleError, match=r"bundle\.json is not understood"):
            read_manifest(text, "lab.tar")


def test_a_file_twice_is_refused(tmp_path: Path) -> None:
    manifest = write_folder(tmp_path)
    twice = msgspec.structs.replace(manifest, files=(*manifest.files, manifest.files[0]))
    with pytest.raises(BundleError, match="lists a file twice"):
        read_manifest(encode_manifest(twice), "lab.tar")


def test_all_reasons_against_a_cluster_are_told_at_once(tmp_path: Path) -> None:
    manifest = write_folder(tmp_path)
    check_manifest(manifest, cluster(), "lab.tar")
    other = cluster(versions=Versions(kubernetes="1.35.8", pause="3.10.1"), network=Network(kind="flannel"))
    with pytest.raises(Refused) as caught:
        check_manifest(manifest, other, "lab.tar")
    for reason in (
        "it has Kubernetes 1.36.4, the cluster file asks for 1.35.8",
        "no image registry.k8s.io/pause:3.10.1",
        "no flannel",
    ):
        assert reason in caught.value.message


def test_the_controllers_image_is_needed_too(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"no image example\.org/longboat:1"):
        check_manifest(write_folder(tmp_path), cluster(image="example.org/longboat:1"), "lab.tar")


def test_hosts_of_another_system_or_architecture_are_named(tmp_path: Path) -> None:
    facts = {
        "good": bare("good", os_version="12", architecture="amd64"),
        "new": bare("new", os_version="13", architecture="amd64"),
        "arm": bare("arm", os_version="12", architecture="arm64"),
    }
    problems = host_problems(write_folder(tmp_path), facts)
    assert [(problem.host, problem.severity) for problem in problems] == [("new", "error"), ("arm", "error")]
    assert "for debian 12 on amd64, the host has debian 13 on amd64" in problems[0].message
