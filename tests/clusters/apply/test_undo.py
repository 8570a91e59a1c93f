"""The audit after `down`: which differences of a host are ours, and which are other people's."""

from __future__ import annotations

import pytest

from longboat.clusters.apply.undo import is_ours, judge

PODS = "10.244.0.0/16"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package kubelet 1.36.4-1.1 installed", True),
        ("package containerd.io 2.4.2 installed", True),
        ("file /etc/cni/net.d/10-longboat.conflist 0a1b", True),
        ("folder /etc/cni", True),
        ("unit longboat-routes.service enabled", True),
        ("chain iptables-nft KUBE-FIREWALL", True),
        ("interface cni0", True),
        ("interface flannel.1", True),
        ("route 10.244.3.0/24 via 10.0.0.3 dev eth0", True),
        ("route 10.200.3.0/24 via 10.0.0.3 dev eth0", False),
        ("route default via 10.0.0.1 dev eth0", False),
        ("package vim 9.1 installed", False),
        ("file /etc/communication.conf 0a1b", False),
        ("mount /mnt/data ext4", False),
        ("interface docker0", False),
        ("file /root/longboat-experiments", False),
    ],
)
def test_whose_it_is(text: str, expected: bool) -> None:
    assert is_ours(text, PODS) is expected


def test_differences_are_told_with_their_sign() -> None:
    report = judge("w-0", ["+\tpackage\tkubelet 1.36.4 installed", "-\tfile\t/etc/hosts 0a", "", "noise"], PODS)
    assert (report.ours, report.others) == (("+ package kubelet 1.36.4 installed",), ("- file /etc/hosts 0a",))
