"""A worker that is lost: the cluster goes on, or goes down, without it, and says so; it is cleaned when it is back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed import hosts as testbed_hosts
from tests.clusters.conftest import Lab
from tests.clusters.test_come_and_go import NODES
from tests.clusters.test_three_planes import wait_for

LOOK = "cat /etc/fstab; dpkg-query -W; sudo nft list ruleset; ip route; systemctl list-unit-files --no-legend"


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_a_worker_that_is_lost_is_forgotten_and_cleaned_when_it_is_back(lab: Callable[..., Lab]) -> None:
    longboat = lab(3, "no-route")
    first, second, third = longboat.group.hosts
    before = first.run(LOOK)
    longboat.write(count=3)
    assert "3 nodes are ready" in longboat("cluster", "up")
    testbed_hosts.switch_off(longboat.group.record, second)
    testbed_hosts.switch_off(longboat.group.record, third)

    # The cluster lives on without the one that left its file.
    longboat.write(count=2)
    told = longboat("cluster", "up", "--forget", "host-2", code=None)
    assert "host-1" in told and "nothing was changed" in told, "the other one is still in the file, and does not answer"
    longboat.write(count=1)
    told = longboat("cluster", "up", "--forget", "host-2", "--forget", "host-1")
    assert "host-2 is forgotten" in told and "1 node is ready" in told
    assert first.run(NODES).split() == ["node/host-0"]

    # One is back in the file when the whole cluster goes, and still off.
    longboat.write(count=2)
    refused = longboat("cluster", "down", "--yes", code=205)
    assert "host-1" in refused and "--forget HOST goes on" in refused
    told = longboat("cluster", "down", "--yes", "--forget", "host-1")
    assert "host-1 is forgotten; what `up` changed there is still there" in told
    assert "longboat cluster down --hosts host-1 --name lab" in told
    assert first.run(LOOK) == before

    for host in (second, third):
        testbed_hosts.switch_on(longboat.group.record, host)
        wait_for(lambda host=host: testbed_hosts.answers(host), 120)  # type: ignore[misc]
        assert "nothing of it is left on 1 host" in longboat(
            "cluster", "down", "--hosts", host.name, "--name", "lab", "--yes"
        )
        assert host.run("sudo ls -d /var/lib/longboat /etc/kubernetes 2>/dev/null || true") == ""
