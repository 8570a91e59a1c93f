"""GPUs by NVML, the driver's own library, through ctypes: no package is imported that takes longer than the question.

A failure anywhere means no GPUs: a machine without a driver is the usual case.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

LIBRARY = "libnvidia-ml.so.1"
MOST_TEXT = 96
"""Bytes of a name or a UUID, as the library's header has them."""
DEVICES = ("/dev/nvidiactl", "/dev/dxg")
"""The driver's, or that of Windows below Linux: without one there is no GPU."""


class NvmlGpu(NamedTuple):
    uuid: str
    number: int  # among those that this process may use
    name: str
    memory: int  # bytes


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class NvmlError(Exception):
    """A call that returned anything but success."""


def list_gpus() -> tuple[NvmlGpu, ...]:
    """All GPUs that this process may use, in the library's order."""
    if not any(map(os.path.exists, DEVICES)):
        return ()
    try:
        return read_gpus(ctypes.CDLL(LIBRARY))
    except (OSError, AttributeError, NvmlError):  # no library, one without these functions, no driver that answers
        return ()


def read_gpus(library: ctypes.CDLL) -> tuple[NvmlGpu, ...]:
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return tuple(_gpu(library, index) for index in range(count.value))
    finally:
        library.nvmlShutdown()


def _gpu(library: ctypes.CDLL, index: int) -> NvmlGpu:
    device, memory = ctypes.c_void_p(), _Memory()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
    _call(library, "nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    uuid, name = (_text(library, f"nvmlDeviceGet{field}", device) for field in ("UUID", "Name"))
    return NvmlGpu(uuid=uuid, number=index, name=name, memory=memory.total)


def _text(library: ctypes.CDLL, function: str, device: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(MOST_TEXT)
    _call(library, function, device, buffer, ctypes.c_uint(MOST_TEXT))
    return buffer.value.decode(errors="replace")


def _call(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    code = getattr(library, function)(*arguments)
    if code:
        raise NvmlError(f"{function} returned {code}")
