"""GPUs are counted by what the machine shows of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed import gpus


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only programs to be found."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_device_files_count_and_control_files_do_not(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / name).touch()
    assert gpus.count(tmp_path, tmp_path / "none") == 3


def test_the_driver_is_asked_next_and_its_tool_last(tmp_path: Path, tools: Path) -> None:
    devices, driver = tmp_path / "dev", tmp_path / "driver"
    devices.mkdir()
    assert gpus.count(devices, driver) == 0
    told = tools / "nvidia-smi"
    told.write_text("#!/bin/sh\n[ $1 = -L ] && echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)' && echo '  MIG 1g.18gb'\n")
    told.chmod(0o755)
    assert gpus.count(devices, driver) == 1
    for address in ("0000:01:00.0", "0000:02:00.0"):
        os.makedirs(driver / address)
    assert gpus.count(devices, driver) == 2
    told.write_text("#!/bin/sh\necho 'GPU 0: none of them works'; exit 9\n")
    assert gpus.count(devices, tmp_path / "none") == 0
