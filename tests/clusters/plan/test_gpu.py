"""Which steps GPU hosts need, and what their scripts install: driver, restart, fabric manager, toolkit."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.observe.facts import GpuDevice, HostFacts
from longboat.clusters.plan import gpu
from longboat.clusters.plan.host_plan import plan_hosts
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.steps import RESTART_HELPS, Kept, Step
from longboat.clusters.spec import GPU_LABEL, ClusterSpec, HostSpec, SoftwareSource
from longboat.core.errors import Refused
from tests.clusters.plan.test_packages import written
from tests.clusters.worlds import KEYS, bare, cluster

H200, V100 = GpuDevice(bus="0000:41:00.0", device="0x2335"), GpuDevice(bus="0000:41:00.0", device="0x1db4")
B200 = GpuDevice(bus="0000:41:00.0", device="0x2901")
READY: dict[str, Any] = {
    "gpus": (H200,),
    "driver": "580.95.05",
    "programs": (("nvidia-smi", "580.95.05"), ("nvidia-ctk", "1.20.1")),
    "files": ((gpu.CDI, "x"),),
}


def with_gpus(**fields: Any) -> ClusterSpec:
    return cluster(addons=("gpu",), **fields)


def host(**fields: Any) -> HostFacts:
    known: dict[str, Any] = {"gpus": (H200,), "kernel": "6.1.0-25-amd64", "architecture": "amd64", "os_version": "12"}
    return bare("w-0", **{**known, **fields})


def steps(spec: ClusterSpec, facts: HostFacts) -> dict[str, Step | Kept]:
    worker = next(each for each in spec.hosts if each.name == facts.name)
    return {item.name: item for item in gpu.steps(spec, worker, facts) if item is not None}


def script(spec: ClusterSpec, facts: HostFacts, name: str) -> str:
    step = steps(spec, facts)[name]
    assert isinstance(step, Step)
    return step.script


def test_what_is_there_and_right_is_left_alone_and_said() -> None:
    found = steps(with_gpus(), host(**READY))
    assert {name: item.reason for name, item in found.items() if isinstance(item, Kept)} == {
        "driver": "NVIDIA driver 580.95.05 is there",
        "toolkit": "nvidia-container-toolkit 1.20.1 is installed, CDI is there",
    }
    assert len(found) == 2


def test_a_host_without_a_driver_gets_it_before_anything_of_the_cluster() -> None:
    plan = plan_hosts(with_gpus(), {"w-0": host()}, KEYS)
    names = [step.name for step in plan.steps]
    assert names == [
        "journal", "data", "repository", "driver", "restart", "toolkit", "sysctl", "packages", "containerd", "join",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "choice", "facts"),
    [
        (cluster(), "auto", host()),
        (with_gpus(), "no", host()),
        (with_gpus(), "auto", host(gpus=())),
    ],
)
def test_nobody_asked_for_gpus_or_there_are_none(spec: ClusterSpec, choice: Any, facts: HostFacts) -> None:
    assert gpu.steps(spec, HostSpec(name="w-0", address="w-0", gpu=choice), facts) == []


def test_gpu_yes_asks_for_them_without_the_add_on() -> None:
    assert gpu.steps(cluster(), HostSpec(name="w-0", address="w-0", gpu="yes"), host())


@pytest.mark.parametrize(
    ("changes", "driver", "names"),
    [
        ({}, "nvidia", "linux-headers-6.1.0-25-amd64 nvidia-open"),
        ({"gpus": (V100,)}, "nvidia", "linux-headers-6.1.0-25-amd64 cuda-drivers"),
        ({"container": "systemd-nspawn"}, "nvidia", "nvidia-open"),
        ({"package_manager": "dnf"}, "nvidia", "kernel-devel-6.1.0-25-amd64 nvidia-open=580*"),
        ({"container": "lxc"}, "distribution", "nvidia-kernel-dkms nvidia-smi libcuda1"),
        ({"container": "lxc", "gpus": (B200,)}, "distribution", "nvidia-open-kernel-dkms nvidia-smi libcuda1"),
        (
            {"container": "lxc", "os_id": "ubuntu"},
            "distribution",
            "nvidia-headless-580-server-open nvidia-utils-580-server",
        ),
    ],
)
def test_packages_of_the_driver(changes: dict[str, Any], driver: Any, names: str) -> None:
    assert f"NAMES='{names}'" in script(with_gpus(driver=driver), host(**changes), "driver")


def test_nouveau_is_kept_away_and_the_initial_file_system_made_again_where_it_is_loaded() -> None:
    step = steps(with_gpus(), host(modules=("nouveau",)))["driver"]
    assert isinstance(step, Step)
    assert "blacklist nouveau" in written(step)
    # On the way back the file goes before the initial file system is made again.
    assert step.script.index("undo initramfs") < step.script.index(gpu.NOUVEAU_FILE)
    assert "update-initramfs" not in script(with_gpus(), host(), "driver")


def test_the_driver_stays_in_its_branch() -> None:
    step = steps(with_gpus(), host())["driver"]
    assert isinstance(step, Step)
    assert "Pin: version 580.*" in written(step)


def test_a_restart_only_of_hosts_that_nobody_works_on() -> None:
    kinds = {
        "bare": steps(with_gpus(), host())["restart"],
        "member": steps(with_gpus(), host(done=(("kubernetes", ""),)))["restart"],
        "here": gpu.works(HostSpec(name="desk", address=""), host()),
    }
    assert {name: getattr(step, "kind", "") for name, step in kinds.items()} == {
        "bare": "restart", "member": "script", "here": "script",
    }  # fmt: skip


def test_a_driver_that_was_replaced_on_the_disk_needs_a_restart_only() -> None:
    found = steps(with_gpus(), host(**{**READY, "programs": (("nvidia-smi", "unknown"), ("nvidia-ctk", "1.20.1"))}))
    assert [name for name, item in found.items() if isinstance(item, Step)] == ["restart"]


def test_nvswitch_needs_its_fabric_manager_of_the_same_version() -> None:
    found = steps(with_gpus(), host(**READY, nvswitch=True))
    assert isinstance(found["fabric"], Step) and 'NAMES="$name=$version-*"' in found["fabric"].script
    running = steps(with_gpus(), host(**READY, nvswitch=True, units=(("nvidia-fabricmanager", "active"),)))
    assert isinstance(running["fabric"], Kept)


def test_the_toolkit_is_pinned_and_described_again_where_the_description_is_missing() -> None:
    assert "NAMES='nvidia-container-toolkit-base=1.20.1-*'" in script(with_gpus(), host(), "toolkit")
    described = script(with_gpus(), host(**{**READY, "files": ()}), "toolkit")
    assert "apt-get" not in described and "cdi generate" in described


def test_the_projects_own_repositories_are_added_for_what_is_missing() -> None:
    spec = with_gpus(source=SoftwareSource())
    urls = [item.url for item in gpu.repositories(spec, spec.hosts[1], host())]
    assert urls == [
        "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/",
        "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/",
    ]
    assert gpu.repositories(spec, spec.hosts[1], host(**READY)) == ()
    assert gpu.repositories(with_gpus(), spec.hosts[1], host()) == ()  # the file names its own
    rocky = host(os_id="rocky", os_version="9.4", package_manager="dnf", architecture="arm64")
    assert gpu.repositories(spec, spec.hosts[1], rocky)[0].url.endswith("/rhel9/sbsa/")


@pytest.mark.parametrize("field", ["kernel", "os_version", "architecture"])
def test_what_a_host_says_of_itself_becomes_no_shell(field: str) -> None:
    spec = with_gpus(source=SoftwareSource())
    with pytest.raises(Refused, match="cannot be part"):
        facts = host(**{field: "6$(reboot)'"})
        gpu.driver_packages(spec, facts)
        gpu.repositories(spec, spec.hosts[1], facts)


def test_gpu_nodes_have_a_label_and_others_have_not() -> None:
    spec = gpu.labelled(with_gpus(workers=2), {"w-0": host(), "w-1": bare("w-1")})
    assert [dict(each.labels) for each in spec.hosts] == [{}, {GPU_LABEL: "true"}, {}]


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_every_script_is_shell(manager: str) -> None:
    facts = host(package_manager=manager, modules=("nouveau",), nvswitch=True)
    scripts = [item.script for item in steps(with_gpus(), facts).values() if isinstance(item, Step)]
    assert len(scripts) == 4
    for text in scripts:
        subprocess.run(["sh", "-n"], input=PRELUDE + text, text=True, check=True)


def read_reason(folder: Path, works: str, modprobe: str) -> tuple[int, str]:
    """Exit code and reason of the check of the driver where nvidia-smi fails, and modprobe prints `modprobe`."""
    for name, text, code in (("nvidia-smi", "NVIDIA-SMI has failed", 9), ("modprobe", modprobe, 1)):
        (folder / name).write_text(f"#!/bin/sh\necho '{text}'; exit {code}\n")
        (folder / name).chmod(0o755)
    functions = 'say() { echo "$*"; }\nfail() { say "$@" >&2; exit 1; }\n'
    command = f"{functions}PATH={folder}:$PATH\n{works}"
    done = subprocess.run(["sh", "-eu", "-c", command], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip()


def test_why_a_driver_does_not_work(tmp_path: Path) -> None:
    check = script(with_gpus(), host(), "restart")
    code, reason = read_reason(tmp_path, check, "FATAL: not found")
    assert code == RESTART_HELPS
    assert reason == "error: the NVIDIA driver does not work: NVIDIA-SMI has failed"
    code, refused = read_reason(tmp_path, check, "ERROR: could not insert: Key was rejected by service")
    assert code == 1 and "Secure Boot refuses the driver" in refused
    member = script(with_gpus(), host(done=(("kubernetes", ""),)), "restart")
    assert read_reason(tmp_path, member, "")[1].endswith("when nobody needs it, then the same command goes on")
