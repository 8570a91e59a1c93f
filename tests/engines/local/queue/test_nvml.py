"""GPUs as the driver's library tells them: one with the same functions stands for it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from longboat.engines.local.queue import machine, nvml
from tests.engines.local.nvml_library import build_nvml


def library(folder: Path, **options: Any) -> ctypes.CDLL:
    return ctypes.CDLL(str(build_nvml(folder, devices=str(folder), **options)))


def h200(number: int, minor: int | None) -> nvml.NvmlGpu:
    return nvml.NvmlGpu(f"GPU-{number}", number, "NVIDIA H200", 150754820096, minor)


def test_every_gpu_with_its_name_memory_and_device_file(tmp_path: Path) -> None:
    built = library(tmp_path)
    assert nvml.read_gpus(built) == (h200(0, 1), h200(1, 0))
    assert built.opened() == 0


def test_a_library_that_does_not_tell_the_device_file(tmp_path: Path) -> None:
    assert nvml.read_gpus(library(tmp_path, has_minors=False)) == (h200(0, None), h200(1, None))


def test_a_gpu_that_may_not_be_opened_is_none_of_ours(tmp_path: Path) -> None:
    """In a run that has only the other one: the library counts both."""
    (tmp_path / "nvidia0").mkdir()  # nothing that can be opened for writing, not even by root
    assert nvml.read_gpus(library(tmp_path)) == (h200(0, 1),)


def test_a_call_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    built = library(tmp_path, broken=999)
    with pytest.raises(nvml.NvmlError, match="nvmlDeviceGetMemoryInfo returned 999"):
        nvml.read_gpus(built)
    assert built.opened() == 0


def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvml, "DEVICES", (str(tmp_path / "none"),))
    assert nvml.list_gpus() == ()
    monkeypatch.setattr(nvml, "DEVICES", (str(tmp_path),))
    monkeypatch.setattr(nvml, "LIBRARY", str(tmp_path / "libnone.so"))
    assert nvml.list_gpus() == ()


def test_gpus_are_looked_for_once_and_only_by_who_asks_for_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    monkeypatch.setattr(nvml, "list_gpus", lambda: asked.append(1) or (nvml.NvmlGpu("GPU-aa", 0, "H100", 80 << 30),))
    monkeypatch.setattr(machine, "_seen", [])
    assert machine.observe_machine(tmp_path, {}, with_gpus=False).gpus == () and not asked
    for _ in range(3):
        assert [gpu.id for gpu in machine.observe_machine(tmp_path, {}).gpus] == ["GPU-aa"]
    assert len(asked) == 1
