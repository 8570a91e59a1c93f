"""What differs between two looks at a host, and what does not count."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import apt_repository, audit, kubeadm, requirements
from testbed.audit import IGNORED, Look
from testbed.hosts import Group


def test_new_gone_and_different() -> None:
    before = Look({"files": {"/etc/a": "1", "/etc/b": "1"}, "units": {"x.service": "enabled"}})
    after = Look({"files": {"/etc/a": "2", "/etc/c": "3"}, "units": {"x.service": "enabled"}})
    assert audit.changes(before, after) == ["files: ~ /etc/a 1 => 2", "files: - /etc/b 1", "files: + /etc/c 3"]
    assert audit.changes(before, before) == []


def test_every_ignore_has_a_reason_and_a_kind() -> None:
    for kind, patterns in IGNORED.items():
        for pattern, reason in patterns.items():
            re.compile(pattern)
            assert len(reason.split()) >= 2, (kind, pattern)


def test_what_changes_by_itself_is_left_out() -> None:
    before = Look({"files": {}, "settings": {"fs.file-nr": "1"}})
    after = Look({"files": {"/var/lib/apt/lists/x": "x", "/etc/kubernetes": "y"}, "settings": {"fs.file-nr": "2"}})
    assert audit.changes(before, after) == ["files: + /etc/kubernetes y"]


@pytest.mark.hosts
def test_packages_come_and_go_and_nothing_else_is_seen(hosts: Callable[..., Group], state: Path) -> None:
    """A host where nothing happens does not change; what apt installs is seen, and after a purge nothing is."""
    lacks = requirements.missing_programs(kubeadm.TARGETS) or apt_repository.missing()
    if lacks:
        pytest.skip(lacks)
    group = hosts(1, "no-route")
    (host,) = group.hosts
    repository = apt_repository.serve(group)
    repository.use(host)
    host.run("sudo apt-get -q update")
    before = audit.look(host)
    host.run("sudo systemctl daemon-reload; python3 -c 'import asyncio'")
    assert audit.changes(before, audit.look(host)) == []
    quietly = "sudo DEBIAN_FRONTEND=noninteractive apt-get -q -y"
    host.run(f"{quietly} install containerd 2>&1")
    host.run(
        "sudo ip link add name left type bridge; sudo ip route add 192.0.2.0/24 dev lo; sudo nft add table ip left"
    )
    seen = audit.changes(before, audit.look(host))
    for line in (
        r"files: \+ /usr/bin/ctr 100755 0:0 [0-9a-f]{16}",
        r"packages: \+ containerd 2\..* ii",
        r"units: \+ containerd.service enabled",
        r"running units: \+ containerd.service running",
        r"interfaces: \+ left ether",
        r"routes: \+ 192\.0\.2\.0/24 dev lo .*",
        r"nft: \+ table ip left",
    ):
        assert any(re.fullmatch(line, text) for text in seen), (line, seen)
    host.run(f"{quietly} purge containerd runc 2>&1")
    host.run("sudo ip link delete left; sudo ip route del 192.0.2.0/24 dev lo; sudo nft delete table ip left")
    left = audit.changes(before, audit.look(host))
    assert left, "containerd's own folders are not the package's"
    assert [
        line for line in left if not re.match(r"files: \+ (/var/lib/containerd|/opt/containerd|/etc/cni)", line)
    ] == []
