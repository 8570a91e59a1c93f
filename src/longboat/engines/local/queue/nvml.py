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
NO_PERMISSION = 4
"""What the library returns for a GPU whose device file this process may not open: in a run, those of others."""


class NvmlGpu(NamedTuple):
    uuid: str
    number: int  # among those that this process may use
    name: str
    memory: int  # bytes
    minor: int | None = None  # of its device file, /dev/nvidiaMINOR; None where the driver does not tell


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class NvmlError(Exception):
    """A call that returned anything but success."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {code}")
        self.code = code


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
        gpus = [_gpu(library, index) for index in range(count.value)]
        return tuple(gpu for gpu in gpus if gpu is not None)
    finally:
        library.nvmlShutdown()


def _gpu(library: ctypes.CDLL, index: int) -> NvmlGpu | None:
    """None for one that this process may not use: it is counted all the same."""
    device, memory = ctypes.c_void_p(), _Memory()
    try:
        _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
    except NvmlError as error:
        if error.code == NO_PERMISSION:
            return None
        raise
    _call(library, "nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    uuid, name = (_text(library, f"nvmlDeviceGet{field}", device) for field in ("UUID", "Name"))
    return NvmlGpu(uuid=uuid, number=index, name=name, memory=memory.total, minor=_minor(library, device))


def _minor(library: ctypes.CDLL, device: ctypes.c_void_p) -> int | None:
    number = ctypes.c_uint()
    try:
        _call(library, "nvmlDeviceGetMinorNumber", device, ctypes.byref(number))
    except (AttributeError, NvmlError):  # a very old library, Windows below Linux
        return None
    return number.value


def _text(library: ctypes.CDLL, function: str, device: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(MOST_TEXT)
    _call(library, function, device, buffer, ctypes.c_uint(MOST_TEXT))
    return buffer.value.decode(errors="replace")


def _call(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    code = getattr(library, function)(*arguments)
    if code:
        raise NvmlError(function, code)
