"""GPUs of a node by NVML: a library with the same functions stands for the driver's."""

from __future__ import annotations

import ctypes
from pathlib import Path

from longboat.launcher.sampling.gpus import GpuMeter, share
from tests.engines.local.nvml_library import build_nvml


def test_every_number_of_the_visible_gpus(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(build_nvml(tmp_path, devices=str(tmp_path))))
    both = GpuMeter(None, library)
    assert [(number, uuid) for number, uuid, _, _ in both.devices] == [(0, "GPU-0"), (1, "GPU-1")]
    assert both.measure() == [[90.0, 1, 150754820096, 500.0, 60.0, 0.0], [91.0, 1, 150754820096, 500.0, 60.0, 1.0]]
    assert [gpu[0] for gpu in GpuMeter("GPU-1", library).devices] == [1]
    assert [gpu[0] for gpu in GpuMeter("0", library).devices] == [0]
    assert GpuMeter("", library).devices == []


def test_what_a_library_does_not_tell_is_left_out(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(build_nvml(tmp_path, broken=3, devices=str(tmp_path))))
    assert GpuMeter("0", library).measure() == [[90.0, None, None, 500.0, 60.0, 0.0]]
    assert GpuMeter(None, ctypes.CDLL(None)).devices == []


def test_ranks_share_the_gpus_of_their_node() -> None:
    assert [share(8, 8, at) for at in (0, 7)] == [[0], [7]]
    assert [share(4, 2, at) for at in (0, 1)] == [[0, 1], [2, 3]]
    assert [share(2, 4, at) for at in range(4)] == [[0], [1], [0], [1]]
    assert share(0, 2, 1) == []
