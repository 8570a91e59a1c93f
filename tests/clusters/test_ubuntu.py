"""Ubuntu hosts become a cluster, train and are bare again: its packages, units and programs are not all Debian's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clusters.conftest import Lab
from tests.clusters.recipes import IMAGE, copy_examples, give_images

LOOK = "cat /etc/fstab; dpkg-query -W; sudo nft list ruleset; ip route; ls /etc/apt/sources.list.d; apt-mark showhold"


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_ubuntu_hosts_train_and_are_bare_again(lab: Callable[..., Lab]) -> None:
    longboat = lab(2, "ubuntu", "1:swap", "no-route")
    before = [host.run(LOOK) for host in longboat.group.hosts]
    assert all("Ubuntu" in host.run("cat /etc/os-release") for host in longboat.group.hosts)
    assert "2 nodes are ready" in longboat("cluster", "up")
    assert "nothing to do" in longboat("cluster", "up")
    give_images(longboat.group.hosts[1:])
    copy_examples(longboat.folder)
    options = ("--on", "lab", "--image", IMAGE, "--cpus", "0.5", "--workdir", "examples/digits")
    assert "accuracy: 0.9" in longboat("run", *options, "--", "python", "train.py", "--epochs", "3")
    assert "nothing of it is left on 2 hosts" in longboat("cluster", "down", "--yes")
    assert [host.run(LOOK) for host in longboat.group.hosts] == before
