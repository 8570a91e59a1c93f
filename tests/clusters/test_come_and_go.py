"""Hosts that come into the cluster file and leave it again, on real hosts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.clusters.conftest import Lab

NODES = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf get nodes -o name"


def states(longboat: Lab) -> dict[str, str]:
    return {row["host"]: row["state"] for row in json.loads(longboat("cluster", "status", "-o", "json", code=None))}


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_a_host_joins_later_and_leaves_again(lab: Callable[..., Lab]) -> None:
    longboat = lab(2)
    first, second = longboat.group.hosts
    longboat.write(count=1)
    assert "1 node is ready" in longboat("cluster", "up")
    taints = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf get node host-0 -o jsonpath={.spec.taints}"
    assert first.run(taints) == ""  # alone it takes pods

    longboat.write(count=2)
    assert "2 nodes are ready" in longboat("cluster", "up")
    assert states(longboat) == {"host-0": "ready", "host-1": "ready"}
    assert "ip route replace" in second.run("sudo cat /etc/systemd/system/longboat-routes.service")

    longboat.write(count=1)
    assert "- leaves the cluster" in longboat("cluster", "up", "--dry-run")
    assert "1 node is ready" in longboat("cluster", "up")
    assert first.run(NODES).split() == ["node/host-0"]
    assert "host-1" not in first.run("sudo cat /etc/systemd/system/longboat-routes.service")
    assert second.run("ls -d /var/lib/longboat /etc/kubernetes 2>/dev/null || true") == ""
    assert "nothing of it is left on 1 host" in longboat("cluster", "down", "--yes")
