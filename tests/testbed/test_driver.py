"""The stand-in for NVIDIA's driver: its tool and NVIDIA's own see the GPUs that the device files say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed import binaries, driver
from testbed.errors import Missing, TestbedError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    if os.geteuid() != 0 or driver.missing():
        pytest.skip(driver.missing() or "device files need root")
    driver.make_root(tmp_path / "root", 8, 3)
    return tmp_path / "root"


def smi(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([root / "usr/bin/nvidia-smi", *arguments], capture_output=True, text=True, check=False)


def test_its_own_tool_lists_what_the_device_files_say(root: Path) -> None:
    listed = smi(root, "-L").stdout.splitlines()
    assert listed == [f"GPU {number}: NVIDIA H200 (UUID: {driver.uuid(3, number)})" for number in range(8)]
    for number in range(8):
        if number not in (2, 5):
            (root / "dev" / f"nvidia{number}").unlink()
    asked = ["--query-gpu=index,uuid,memory.total,utilization.gpu", "--format=csv"]
    assert smi(root, *asked).stdout.splitlines() == [
        "index, uuid, memory.total [MiB], utilization.gpu [%]",
        f"0, {driver.uuid(3, 2)}, 143771 MiB, 0 %",
        f"1, {driver.uuid(3, 5)}, 143771 MiB, 0 %",
    ]
    assert smi(root, "-i", "1", "--query-gpu=pci.bus_id", "--format=csv,noheader").stdout == "00000000:46:00.0\n"


def test_the_table_is_straight_and_says_that_it_is_a_stand_in(root: Path) -> None:
    lines = smi(root).stdout.splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}
    assert "580.95.05 (stand-in)" in lines[2] and "CUDA Version: 13.0" in lines[2]


def test_failures_are_those_that_scripts_know(root: Path) -> None:
    assert smi(root, "--query-gpu=nothing").returncode == 2
    assert smi(root, "--unknown").returncode == 2
    for number in range(8):
        (root / "dev" / f"nvidia{number}").unlink()
    assert (smi(root).returncode, smi(root).stdout) == (6, "No devices were found\n")
    (root / "dev/nvidiactl").unlink()
    assert smi(root).returncode == 9 and "couldn't communicate with the NVIDIA driver" in smi(root).stdout
    shutil.rmtree(root / "usr/lib")
    assert smi(root).returncode == 12


def test_nvidia_s_own_tool_describes_the_devices(root: Path) -> None:
    target = binaries.BY_NAME["nvidia-container-toolkit"]
    programs = binaries.lookup(target)
    if programs is None:
        pytest.skip("the container toolkit is not built: python -m testbed build nvidia-container-toolkit")
    done = subprocess.run(
        [programs["nvidia-ctk"], "cdi", "generate", "--format=json", f"--driver-root={root}", f"--dev-root={root}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for number in range(8):
        assert f'"{root}/dev/nvidia{number}"' in done.stdout
    assert f'"{root}/usr/bin/nvidia-smi"' in done.stdout
    assert f"libcuda.so.{driver.VERSION}" in done.stdout


def test_machines_have_gpus_of_their_own() -> None:
    one, two = driver.device_minors(8, 1), driver.device_minors(8, 2)
    assert len(set(one.values())) == len(one) == 12 and not set(one.values()) & set(two.values())
    assert one["nvidia3"] == 0x103 and driver.uuid(1, 3) != driver.uuid(2, 3)
    for count, machine in ((0, 1), (65, 1), (1, 0), (1, 4096)):
        with pytest.raises(TestbedError, match="1 to 64 GPUs"):
            driver.device_minors(count, machine)


def test_a_host_without_a_driver_has_only_what_is_on_the_bus(tmp_path: Path) -> None:
    driver.write_host_files(tmp_path, 2, 1, has_driver=False)
    bus = tmp_path / driver.HOST_FOLDER / "pci"
    assert sorted(os.listdir(bus)) == ["0000:41:00.0", "0000:42:00.0"]
    assert (bus / "0000:41:00.0/vendor").read_text() == "0x10de\n"
    assert "DRIVER" not in (bus / "0000:41:00.0/uevent").read_text()
    assert not (tmp_path / "usr/bin/nvidia-smi").exists() and not (bus.parent / "devices").exists()
    assert "nvidia0 256\n" in (bus.parent / "dormant/devices").read_text()  # for a driver that is installed later


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    with pytest.raises(Missing, match="install gcc and libc6-dev"):
        driver.compiled()


def test_what_does_not_compile_tells_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("gcc"):
        pytest.skip("gcc is not there")
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    shutil.copytree(driver.SOURCES, tmp_path / "sources")
    monkeypatch.setattr(driver, "SOURCES", tmp_path / "sources")
    (tmp_path / "sources/cuda.c").write_text("nonsense")
    with pytest.raises(TestbedError, match="does not compile"):
        driver.compiled()
    assert list((tmp_path / "cache/drivers").iterdir()) == []
