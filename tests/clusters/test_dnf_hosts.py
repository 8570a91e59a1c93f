"""The real dnf and rpm: what they brought goes again, with the key that rpm trusts, also after they were cut off.

They are Debian's packages of them on a Debian host; what they install are empty packages, signed as a project's are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.clusters.apply.execute import perform
from longboat.clusters.apply.step_log import StepLog
from longboat.clusters.apply.undo import undo
from longboat.clusters.hosts.connection import CommandFailed
from longboat.clusters.plan.packages import packages, repository
from longboat.clusters.plan.steps import Step
from longboat.clusters.plan.system import journal
from longboat.clusters.spec import PackageRepository, SoftwareSource
from testbed.hosts import Group, Host
from tests.clusters.test_firewall_hosts import HostShell
from tests.clusters.worlds import bare, cluster

TOOLS = "dnf rpm createrepo-c gpg gpg-agent"
REPOSITORY = """set -e
export GNUPGHOME=/root/gpg
mkdir -m 700 "$GNUPGHOME"
mkdir /srv/rpm
gpg -q --batch --passphrase '' --quick-generate-key 'project <project@longboat.test>' rsa2048 sign never 2>/dev/null
gpg --armor --export > /srv/rpm/key.asc
make() {
    cat > "/root/$1.spec" <<END
Name: $1
Version: $2
Release: 150500.1.1
Summary: x
License: x
BuildArch: noarch
${3:+Requires: $3}
%description
x
%files
END
    rpmbuild -bb --quiet --define '_topdir /root/rpm' "/root/$1.spec" >/dev/null 2>&1
}
make conntrack-tools 1.4.8
make kubernetes-cni 1.9.1
make cri-tools 1.36.0
make kubelet 1.36.4 'kubernetes-cni conntrack-tools'
make kubelet 1.36.9 kubernetes-cni
make kubeadm 1.36.4 cri-tools
make kubectl 1.36.4
make container-selinux 2.0
make containerd.io 2.4.2 container-selinux
make of-the-user 1.0 kubernetes-cni
cp /root/rpm/RPMS/noarch/*.rpm /srv/rpm
rpm --define '_gpg_name project' --define '__gpg /usr/bin/gpg' --addsign /srv/rpm/*.rpm >/dev/null 2>&1
createrepo_c -q /srv/rpm
systemd-run -q --unit=rpms python3 -m http.server 8001 -d /srv/rpm
"""
BROUGHT = {
    "conntrack-tools", "container-selinux", "containerd.io", "cri-tools", "kubeadm", "kubectl", "kubelet",
    "kubernetes-cni",
}  # fmt: skip


def installed(host: Host) -> set[str]:
    return set(host.run("sudo rpm -qa --qf '%{NAME}\\n'").split())


def act(shell: HostShell, *steps: Step | object) -> None:
    for step in steps:
        assert isinstance(step, Step)
        perform(shell, step, b"", StepLog(lambda event: None))


@pytest.mark.hosts
@pytest.mark.slow
@pytest.mark.soak
def test_dnf_brings_packages_and_takes_exactly_these_away(hosts: Callable[..., Group], tmp_path: Path) -> None:
    (host,) = hosts(1).hosts
    install = f"sudo apt-get -q update && sudo DEBIAN_FRONTEND=noninteractive apt-get -q -y install {TOOLS} >/dev/null"
    host.run(f"{install} && sudo mkdir /etc/yum.repos.d", within_s=300)
    host.run("sudo sh -s", text=REPOSITORY)
    key = host.run("cat /srv/rpm/key.asc").encode()
    source = SoftwareSource(repositories=(PackageRepository(url="http://127.0.0.1:8001/", key="k"),))
    spec, facts = cluster(workers=0, source=source), bare("cp-0", os_id="rocky", package_manager="dnf")
    shell, plane = HostShell(host), spec.hosts[0]
    step = packages(spec, plane, facts)
    assert isinstance(step, Step)
    act(shell, journal(spec, plane, facts), repository(spec, plane, facts, {"k": key}))
    assert installed(host) == {"gpg-pubkey"}, "the key of the repository"

    # A kubelet of the user's own, of another version, is neither replaced nor removed.
    flags = "--setopt=disable_excludes=longboat-kubernetes"
    host.run(f"sudo dnf -q -y {flags} install kubelet-1.36.9 2>&1")
    with pytest.raises(CommandFailed, match="other versions are installed: kubelet"):
        act(shell, step)
    host.run("sudo dnf -q -y remove kubelet kubernetes-cni 2>&1")

    # Cut off when dnf has done its work and nothing came after it; then once more.
    before, cut, _ = step.script.partition("\ndnf -q -y $flags install $wanted\n")
    assert cut
    with pytest.raises(CommandFailed):
        act(shell, Step(host=step.host, name=step.name, title="", script=f"{before}{cut}exit 1\n"))
    assert installed(host) == BROUGHT | {"gpg-pubkey"}
    act(shell, step)
    host.run("sudo dnf -q -y install of-the-user 2>&1")

    with pytest.raises(CommandFailed) as raised:
        undo(shell, on_line=lambda line: None, timeout_s=120)
    assert any("need ours: of-the-user" in line for line in raised.value.last_lines)
    assert installed(host) >= BROUGHT
    host.run("sudo rpm -e of-the-user")
    undo(shell, on_line=lambda line: None, timeout_s=120)
    assert installed(host) == set()
    assert host.run("ls /etc/yum.repos.d; ls -d /etc/pki/rpm-gpg 2>/dev/null || true") == ""
