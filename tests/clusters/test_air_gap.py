"""A cluster out of one file: hosts without a way out and without a repository, the bundle made from a real one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.clusters.conftest import Lab, pinned_images

STATE = "dpkg-query -W; sudo find /etc/apt /var/lib/apt/lists -type f | sort; ip route"


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_a_cluster_is_made_of_a_bundle_without_any_network(lab: Callable[..., Lab]) -> None:
    longboat = lab(2, "no-route", uses_repository=False)
    first, second = longboat.group.hosts
    before = [host.run(STATE) for host in (first, second)]
    repository = longboat.repository
    mirrors = [f"{repository.kubernetes_url()}/", f"{repository.url}/distribution/"]
    repositories = [{"url": url, "key": "key.asc"} for url in mirrors]
    longboat.write(count=2, source={"repositories": repositories, "images": pinned_images(repository)})
    assert "6 packages, 7 images" in longboat("cluster", "bundle", "-o", "lab.tar")
    repository.refuse(503)  # from here on there is nothing but the file
    asked = len(repository.requests())

    planned = longboat("cluster", "up", "--from", "lab.tar", "--dry-run")
    assert "+ images: import images from" in planned and "repository" not in planned
    assert "2 nodes are ready" in longboat("cluster", "up", "--from", "lab.tar")
    assert "nothing to do" in longboat("cluster", "up", "--from", "lab.tar")
    assert len(repository.requests()) == asked
    assert first.run("sudo ls /var/lib/longboat | grep -x bundle || true") == ""
    pinned = first.run("sudo ctr -n k8s.io images ls 'name==registry.k8s.io/pause:3.10.2'")
    assert "io.cri-containerd.pinned=pinned" in pinned

    # As a folder it is the same.
    (longboat.folder / "software").mkdir()
    subprocess.run(["tar", "-xf", "lab.tar", "-C", "software"], cwd=longboat.folder, check=True)
    longboat.write(count=2, source="software")
    assert "nothing to do" in longboat("cluster", "up")
    assert "nothing of it is left on 2 hosts" in longboat("cluster", "down", "--yes")
    assert [host.run(STATE) for host in (first, second)] == before
