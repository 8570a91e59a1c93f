"""Debian packages have the layout of the real ones, and only what changes makes another one."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from testbed import binaries, packages
from testbed.binaries import Binaries
from testbed.packages import NEWEST, OF_DISTRIBUTION, OF_NVIDIA, Package

BY_NAME = {package.name: package for package in (*NEWEST, *OF_DISTRIBUTION, *OF_NVIDIA)}


def paths(package: Package) -> set[str]:
    return {*package.programs, *package.texts}


def test_layout_of_the_kubernetes_project() -> None:
    units = "usr/lib/systemd/system"
    assert paths(BY_NAME["kubelet"]) >= {"usr/bin/kubelet", f"{units}/kubelet.service", "etc/default/kubelet"}
    assert paths(BY_NAME["kubeadm"]) == {"usr/bin/kubeadm", f"{units}/kubelet.service.d/10-kubeadm.conf"}
    assert {"opt/cni/bin/bridge", "opt/cni/bin/loopback"} < paths(BY_NAME["kubernetes-cni"])
    assert BY_NAME["kubelet"].version == f"{binaries.KUBERNETES_VERSION}-1.1"
    assert not any("config.toml" in path for path in paths(BY_NAME["containerd"]))


def test_two_versions_are_one_minor_release_apart() -> None:
    newest, previous = (int(version.split(".")[1]) for version in packages.VERSIONS)
    assert newest == previous + 1, "kubeadm upgrades by one"
    kubelet = next(package for package in packages.VERSIONS[binaries.PREVIOUS_VERSION] if package.name == "kubelet")
    assert kubelet.version == f"{binaries.PREVIOUS_VERSION}-1.1"


def test_layout_of_nvidia_s_toolkit() -> None:
    assert paths(BY_NAME["nvidia-container-toolkit-base"]) >= {"usr/bin/nvidia-ctk", "usr/bin/nvidia-cdi-hook"}
    assert "nvidia-container-toolkit-base (= 1.20.1-1)" in packages.control(BY_NAME["nvidia-container-toolkit"], 1)


def test_every_program_is_in_one_of_its_targets() -> None:
    for package in (*BY_NAME.values(), *packages.VERSIONS[binaries.PREVIOUS_VERSION]):
        known = {program for name in package.targets for program in binaries.BY_NAME[name].programs}
        assert set(package.programs.values()) <= known, package.name


def test_control_file() -> None:
    lines = packages.control(BY_NAME["kubelet"], 1234).splitlines()
    assert "Package: kubelet" in lines and "Installed-Size: 1234" in lines
    assert "Depends: kubernetes-cni (>= 1.2.0), mount, util-linux" in lines
    assert not any(line.startswith("Depends") for line in packages.control(BY_NAME["kubectl"], 1).splitlines())


def test_only_what_has_a_service_has_scripts() -> None:
    assert packages.scripts(BY_NAME["kubectl"]) == {}
    assert "start)" in packages.scripts(BY_NAME["containerd"])["postinst"]
    assert "start)" not in packages.scripts(BY_NAME["kubelet"])["postinst"], "kubeadm starts it"


def test_key_changes_with_the_content() -> None:
    kubelet = BY_NAME["kubelet"]
    changed = dataclasses.replace(kubelet, texts={**kubelet.texts, "etc/default/kubelet": "KUBELET_EXTRA_ARGS=--v=4\n"})
    assert packages.key_of(kubelet) == packages.key_of(BY_NAME["kubelet"]) != packages.key_of(changed)


@pytest.mark.skipif(packages.missing() is not None, reason=str(packages.missing()))
def test_a_package_is_what_dpkg_makes_of_it(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    package = Package("hello", "1.0-1", (), {"usr/bin/hello": "program"}, {"etc/hello": "text"}, unit="hello.service")
    made = packages.build(package, tmp_path, Binaries({"program": program}))
    listed = subprocess.run(["dpkg-deb", "--contents", str(made)], capture_output=True, text=True, check=True).stdout
    rows = {line.split()[-1]: line.split()[:2] for line in listed.splitlines()}
    assert rows["./usr/bin/hello"] == ["-rwxr-xr-x", "root/root"] and rows["./etc/hello"][0] == "-rw-r--r--"
    assert packages.control_of(made).startswith("Package: hello\nVersion: 1.0-1\n")
    parts = subprocess.run(["dpkg-deb", "--info", str(made), "conffiles", "postinst"], capture_output=True, text=True)
    assert parts.stdout.startswith("/etc/hello\n") and "hello.service" in parts.stdout
