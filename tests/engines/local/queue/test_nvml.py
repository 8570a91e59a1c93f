"""GPUs as the driver's library tells them: one with the same functions, compiled here, stands for it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from longboat.engines.local.queue import machine, nvml

LIBRARY = """
#include <stdio.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static int open_ = 0;
int nvmlInit_v2(void) { open_++; return 0; }
int nvmlShutdown(void) { open_--; return 0; }
int opened(void) { return open_; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{ *device = (void *)(0x700000000000ul + index); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned length)
{ return snprintf(text, length, "GPU-%p", device) >= (int)length; }
int nvmlDeviceGetName(void *device, char *text, unsigned length)
{ return snprintf(text, length, "NVIDIA H200") >= (int)length; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory)
{ memory->total = 150754820096ull; memory->free = memory->used = 1; return BROKEN; }
"""


@pytest.fixture
def library(tmp_path: Path, request: pytest.FixtureRequest) -> ctypes.CDLL:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(LIBRARY)
    built = tmp_path / "libnvml.so"
    command = [compiler, "-shared", "-fPIC", f"-DBROKEN={request.param}", "-o", str(built), str(tmp_path / "nvml.c")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(built))


@pytest.mark.parametrize("library", [0], indirect=True)
def test_every_gpu_with_its_name_and_memory(library: ctypes.CDLL) -> None:
    assert nvml.read_gpus(library) == (
        nvml.NvmlGpu(uuid="GPU-0x700000000000", number=0, name="NVIDIA H200", memory=150754820096),
        nvml.NvmlGpu(uuid="GPU-0x700000000001", number=1, name="NVIDIA H200", memory=150754820096),
    )
    assert library.opened() == 0


@pytest.mark.parametrize("library", [999], indirect=True)
def test_a_call_that_fails_leaves_nothing_open(library: ctypes.CDLL) -> None:
    with pytest.raises(nvml.NvmlError, match="nvmlDeviceGetMemoryInfo returned 999"):
        nvml.read_gpus(library)
    assert library.opened() == 0


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
