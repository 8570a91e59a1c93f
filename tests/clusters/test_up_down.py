"""Real hosts become a cluster, change, and get back to what they were: `longboat cluster` from end to end."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.clusters.conftest import Lab


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
def test_two_bare_hosts_become_a_cluster_and_are_bare_again(lab: Callable[..., Lab]) -> None:
    longboat = lab(2, "1:swap", "no-route")
    first, second = longboat.group.hosts
    before = [host.run("cat /etc/fstab; dpkg-query -W; sudo nft list ruleset; ip route") for host in (first, second)]

    planned = longboat("cluster", "up", "--dry-run")
    assert "+ init: make the control plane" in planned and "+ swap: comment swap out of /etc/fstab" in planned
    assert first.run("sudo ls /var/lib/longboat 2>/dev/null || true") == ""  # it was only looked at

    # The user's patience ends in the middle.
    process = longboat.popen("cluster", "up", "-o", "json")
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["step"] == "packages" and json.loads(line)["state"] == "done":
            break
    process.kill()
    process.communicate()

    told = longboat("cluster", "up")
    assert "2 nodes are ready" in told
    assert "nothing to do" in longboat("cluster", "up")
    rows = json.loads(longboat("cluster", "status", "-o", "json"))
    assert [(row["host"], row["role"], row["state"]) for row in rows] == [
        ("host-0", "control-plane", "ready"), ("host-1", "worker", "ready"),
    ]  # fmt: skip

    # It is a cluster like any other: --on works at once, with the context that `up` made.
    assert "lab" in (longboat.home / ".kube" / "config").read_text()
    longboat("check", "--on", "lab", "--image", "any", "--", "true")
    assert "nothing of it is left on 2 hosts" in longboat("cluster", "down", "--yes")
    after = [host.run("cat /etc/fstab; dpkg-query -W; sudo nft list ruleset; ip route") for host in (first, second)]
    assert after == before
    assert (
        not (longboat.home / ".kube" / "config").exists()
        or "lab" not in (longboat.home / ".kube" / "config").read_text()
    )
    assert first.run("sudo ls -d /var/lib/longboat 2>/dev/null || true") == ""
