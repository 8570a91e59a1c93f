"""A library with the functions of NVML that Longboat calls, compiled for the test: it stands for the driver's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static int open_ = 0;
static unsigned index_of(void *device) { return (unsigned long)device - 0x700000000000ul; }
static unsigned minor_of(void *device) { return 1 - index_of(device); }  /* as PCI numbers may have it */
int nvmlInit_v2(void) { open_++; return 0; }
int nvmlShutdown(void) { open_--; return 0; }
int opened(void) { return open_; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    char path[512];
    int file;
    *device = (void *)(0x700000000000ul + index);
    snprintf(path, sizeof path, FOLDER "/nvidia%u", minor_of(*device));
    if ((file = open(path, O_RDWR)) < 0 && access(path, F_OK) == 0) return 4;  /* NVML_ERROR_NO_PERMISSION */
    if (file >= 0) close(file);
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length)
{ return snprintf(text, length, "GPU-%u", index_of(device)) >= (int)length; }
int nvmlDeviceGetName(void *device, char *text, unsigned length)
{ return snprintf(text, length, "NVIDIA H200") >= (int)length; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory)
{ memory->total = 150754820096ull; memory->free = memory->used = 1; return BROKEN; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{ rates[0] = 90 + index_of(device); rates[1] = 10; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 500000; return 0; }
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *degrees) { *degrees = 60 + sensor; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{ *reasons = index_of(device) ? 0x40 : 0x4; return 0; }
#if HAS_MINORS
int nvmlDeviceGetMinorNumber(void *device, unsigned *number) { *number = minor_of(device); return 0; }
#endif
"""


def build_nvml(folder: Path, *, broken: int = 0, has_minors: bool = True, devices: str = "/dev") -> Path:
    """Two GPUs, whose device files are in `devices`, in another order than theirs."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    (folder / "nvml.c").write_text(SOURCE)
    built = folder / "libnvidia-ml.so.1"
    defines = [f"-DBROKEN={broken}", f"-DHAS_MINORS={int(has_minors)}", f'-DFOLDER="{devices}"']
    subprocess.run([compiler, "-shared", "-fPIC", *defines, "-o", str(built), str(folder / "nvml.c")], check=True)
    return built
