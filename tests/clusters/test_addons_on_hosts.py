"""Add-ons of a cluster that `up` made of a real host: volumes are written to, survive the cluster, and are purged."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from testbed import binaries, images
from testbed.errors import Missing
from tests.clusters.addons.test_addons_pods import CLAIM, TRAINER
from tests.clusters.conftest import Lab

KUBECTL = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf"
FOLDER = "/var/lib/longboat-volumes"


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_volumes_outlive_the_cluster_unless_they_are_purged(lab: Callable[..., Lab]) -> None:
    try:
        archive = images.archive("longboat", binaries.find(("tools", "containerd")))
    except Missing as error:
        pytest.skip(str(error))
    longboat = lab(1)
    (host,) = longboat.group.hosts
    os.link(archive, longboat.repository.folder / "public" / "longboat.tar")

    def with_storage() -> None:
        """The cluster, then the image that the archive of its images does not have, then the add-on."""
        longboat.write(count=1, addons=[])
        longboat("cluster", "up")
        host.run(f"curl -fsS --noproxy '*' {longboat.repository.url}/longboat.tar | sudo ctr -n k8s.io images import -")
        longboat.write(count=1, addons=["storage"], image=images.reference("longboat"))
        assert "storage 0" in longboat("cluster", "up")

    with_storage()
    again = longboat("cluster", "up")
    assert again.count("nothing to do") == 2  # the hosts, the add-on
    pod = TRAINER.replace("longboat.test/python:latest", images.reference("longboat"))
    body = CLAIM + "---\n" + pod.replace("NAME", "writer").replace("SCRIPT", "echo weights > /data/model.pt")
    host.run(f"{KUBECTL} apply -f -", text=body)
    host.run(f"{KUBECTL} wait --for=jsonpath={{.status.phase}}=Succeeded pod/writer --timeout=120s", within_s=150)
    assert host.run(f"sudo sh -c 'cat {FOLDER}/pvc-*/model.pt'") == "weights\n"

    told = longboat("cluster", "down", "--yes")
    assert (
        f"kept: the volume of default/data, {FOLDER}/pvc-" in told and f"volumes of users in {FOLDER} on host-0" in told
    )
    assert "nothing of it is left on 1 host" in told
    assert host.run(f"sudo sh -c 'cat {FOLDER}/pvc-*/model.pt'") == "weights\n"

    # Volumes of this cluster are purged; what the one before left on purpose stays, and is named.
    (left,) = host.run(f"sudo ls {FOLDER}").split()
    with_storage()
    host.run(f"{KUBECTL} apply -f -", text=body)
    host.run(f"{KUBECTL} wait --for=jsonpath={{.status.phase}}=Succeeded pod/writer --timeout=120s", within_s=150)
    told = longboat("cluster", "down", "--yes", "--purge-data")
    assert "nothing of it is left" in told and f"volumes of users in {FOLDER} on host-0: {left}\n" in told
    assert host.run(f"sudo ls {FOLDER}").split() == [left]
