"""Pulling from the registry: served, hanging, refused, crawling; and what pods show meanwhile."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from testbed import api, binaries, images
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.fixtures import Kubectl
from testbed.registry import Registry, read_image, write_new_image
from tests.testbed.test_node import pod

WAITING = "{.status.containerStatuses[0].state.waiting.reason}"


@pytest.fixture
def image(registry: Registry, tmp_path: Path) -> str:
    """An image that no node has."""
    program = binaries.find(("tools",))["pause"]
    return registry.add("new", write_new_image(tmp_path / "new.tar", program, os.urandom(1 << 20)))


def pulling(name: str, image: str) -> str:
    return pod(name, containers=[{"name": "main", "image": image, "imagePullPolicy": "Always"}])


def test_an_archive_is_read_where_it_lies(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    archive = write_new_image(tmp_path / "a.tar", program, b"content")
    image = read_image(archive)
    assert image.media_type == "application/vnd.oci.image.manifest.v1+json" and len(image.blobs) == 3
    for digest, blob in image.blobs.items():
        content = tmp_path / "blob"
        content.write_bytes(archive.read_bytes()[blob.offset : blob.offset + blob.size])
        assert digest == f"sha256:{images.digest_of(content)}"


@pytest.mark.cluster
def test_without_a_real_node_there_is_nobody_to_serve(cluster: Cluster) -> None:
    with pytest.raises(TestbedError, match="no real node"):
        Registry(cluster)


@pytest.mark.pods
def test_a_pull_hangs_and_finishes_when_released(registry: Registry, image: str, kubectl: Kubectl) -> None:
    registry.hang("blobs")
    kubectl("create", "-f", "-", text=pulling("slow", image))
    api.wait_for("it is being pulled", lambda: any("/blobs/" in one for one in registry.requests), 30.0)
    kubectl("wait", f"--for=jsonpath={WAITING}=ContainerCreating", "pod/slow", "--timeout=30s")
    assert "Pulling image" in kubectl("get", "events", "--field-selector=involvedObject.name=slow")
    registry.restore()
    kubectl("wait", "--for=condition=ready", "pod/slow", "--timeout=60s")
    assert "Successfully pulled" in kubectl("get", "events", "--field-selector=involvedObject.name=slow")


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.parametrize("status", [404, 500])
def test_a_pull_is_refused_and_tried_again(registry: Registry, image: str, kubectl: Kubectl, status: int) -> None:
    registry.refuse(status)
    kubectl("create", "-f", "-", text=pulling("refused", image))
    api.wait_for("the pull has failed", lambda: waiting(kubectl) in ("ErrImagePull", "ImagePullBackOff"), 60.0)
    registry.restore()
    kubectl("wait", "--for=condition=ready", "pod/refused", "--timeout=90s")


def waiting(kubectl: Kubectl) -> str:
    return kubectl("get", "pod", "refused", "-o", f"jsonpath={WAITING}")


@pytest.mark.pods
def test_a_crawling_registry_is_waited_for(registry: Registry, image: str, kubectl: Kubectl) -> None:
    registry.crawl(50_000)
    kubectl("create", "-f", "-", text=pulling("crawls", image))
    api.wait_for("it is being pulled", lambda: any("/blobs/" in one for one in registry.requests), 30.0)
    registry.crawl(10_000_000)
    kubectl("wait", "--for=condition=ready", "pod/crawls", "--timeout=60s")


@pytest.mark.pods
def test_cached_images_are_served_and_strangers_are_not_found(registry: Registry, kubectl: Kubectl) -> None:
    image = registry.add("team/python", images.archive("python", binaries.find(())))
    one = {"name": "main", "image": image, "imagePullPolicy": "Always", "command": ["python3", "-c", "print(6 * 7)"]}
    kubectl("create", "-f", "-", text=pod("served", containers=[one]))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/served", "--timeout=60s")
    assert kubectl("logs", "served") == "42\n"
    preloaded = one | {"image": images.reference("python"), "imagePullPolicy": "IfNotPresent"}
    kubectl("create", "-f", "-", text=pod("preloaded", containers=[preloaded]))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/preloaded", "--timeout=60s")
    for path in ("/v2/other/manifests/latest", "/v2/team/python/blobs/sha256:0", "/", "/v2/team/python/tags/list"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(registry.url + path, timeout=10)
