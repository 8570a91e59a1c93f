"""Hosts with GPUs of a stand-in driver: driver, NVIDIA's own toolkit and device plugin, and back to what they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed import audit, driver, hostfaults
from tests.clusters.conftest import Lab

KUBECTL = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf"
OFFERED = f"{KUBECTL} get nodes -o jsonpath='{{range .items[*]}}{{.status.allocatable.nvidia\\.com/gpu}} {{end}}'"


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_gpu_hosts_with_and_without_a_driver(lab: Callable[..., Lab]) -> None:
    longboat = lab(2, "0:gpus=2", "1:gpus=1", "1:no-driver", "no-route")
    ready, bare = longboat.group.hosts
    longboat.write(count=2, addons=["gpu"])
    packages = [host.run("dpkg-query -W; ls /etc/modprobe.d /etc/apt/preferences.d") for host in (ready, bare)]

    planned = longboat("cluster", "up", "--dry-run")
    assert f"= driver: NVIDIA driver {driver.VERSION} is there" in planned
    assert "+ driver: install nvidia-open, keep nouveau away" in planned
    with hostfaults.restarting(longboat.group.record, bare):
        told = longboat("cluster", "up")
    assert "host-0: 2 GPUs" in told and "host-1: 1 GPU\n" in told
    assert told.count(f"{driver.VERSION} (stand-in)") == 2, "a table of nvidia-smi from a pod on each"
    assert ready.run(OFFERED).split() == ["2", "1"]
    assert bare.run("apt-mark showhold; cat /etc/modprobe.d/longboat-nouveau.conf").splitlines()[-2:] == [
        "blacklist nouveau", "options nouveau modeset=0",
    ]  # fmt: skip
    again = longboat("cluster", "up")
    assert "nothing to do" in again and "stand-in" not in again
    assert ready.run(f"{KUBECTL} -n kube-system get jobs -o name") == ""

    assert "nothing of it is left on 2 hosts" in longboat("cluster", "down", "--yes")
    after = [host.run("dpkg-query -W; ls /etc/modprobe.d /etc/apt/preferences.d") for host in (ready, bare)]
    assert after == packages
    assert ready.run("ls /run/cdi /usr/bin/nvidia-ctk 2>/dev/null || true") == ""


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_the_drivers_own_packages_come_from_debian_and_go_again(lab: Callable[..., Lab]) -> None:
    """The device is a stand-in on the PCI bus, the packages are NVIDIA's as Debian has them. No module can be built for
    a kernel that is the machine's, so the host fails there; what was installed by then goes."""
    longboat = lab(1, "0:gpus=1", "0:no-driver", uses_repository=False)
    (host,) = longboat.group.hosts
    host.run("sudo sed -i 's/ main$/ main contrib non-free non-free-firmware/' /etc/apt/sources.list")
    longboat.write(count=1, addons=["gpu"], driver="distribution")
    before = audit.look(host)
    with hostfaults.restarting(longboat.group.record, host):
        told = longboat("cluster", "up", code=205)
    assert "the NVIDIA driver does not work" in told, told
    version = host.run("dpkg-query -W -f '${Version}' libnvidia-ml1")
    assert version.startswith("535.")
    real = host.run("dpkg-query -S $(readlink -f /usr/bin/nvidia-smi); nvidia-smi || true")
    assert "nvidia-smi: " in real and "stand-in" not in real and "NVIDIA driver" in real
    assert "libcuda.so.1" in host.run("/sbin/ldconfig -p")
    assert {"libcuda1", "libnvidia-ml1", "nvidia-smi"} <= set(
        host.run("apt-mark showhold").replace(":amd64", "").split()
    )

    assert "nothing of it is left on 1 host" in longboat("cluster", "down", "--yes")
    # The restart changed what runs and what is mounted; files, packages and holds are as they were.
    kinds = ("files", "packages", "holds", "units", "users")
    assert [change for change in audit.changes(before, audit.look(host)) if change.startswith(kinds)] == []
