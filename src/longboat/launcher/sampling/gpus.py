"""GPUs of a node, by NVML through ctypes: use, memory, power, temperature and throttling.

The library is opened once. A driver that hangs holds up this thread only; a call that fails leaves one number out.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libnvidia-ml.so.1"
DEVICES = ("/dev/nvidiactl", "/dev/dxg")
"""The driver's, or that of Windows below Linux: without one there is no GPU."""
MOST_TEXT = 96  # bytes, as nvml.h has it for the longest of its texts
MOST_GPUS = 64  # of one machine; the largest has 16
COLUMNS = ("gpu", "gpu_memory", "gpu_memory_total", "gpu_power", "gpu_temperature", "gpu_throttle")
"""Percent, bytes, bytes, watts, degrees Celsius, share of the time (0 to 1) in which the GPU slowed itself down."""
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's reasons that mean trouble: hardware slowdown, heat by software and hardware, power brake. A power cap that is
reached (0x4) is how a well used GPU runs."""


class GpuMeter:
    """The GPUs of this node; none where there is no driver."""

    def __init__(self, visible: str | None, library: Any = None) -> None:
        """`visible`: CUDA_VISIBLE_DEVICES of the ranks; None: all that there are."""
        self.devices: list[tuple[int, str, str, Any]] = []  # number, UUID, name, handle
        self.driver = ""
        try:
            self._library = library if library is not None else _open()
            if self._library is not None:
                self.devices = [gpu for gpu in self._list() if _is_visible(gpu[0], gpu[1], visible)]
        except (OSError, AttributeError, ImportError, ValueError):
            self.devices = []

    def _list(self) -> list[tuple[int, str, str, Any]]:
        import ctypes

        count = ctypes.c_uint()
        if self._library.nvmlInit_v2() or self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        gpus = []
        for number in range(min(count.value, MOST_GPUS)):
            device = ctypes.c_void_p()
            if not self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(device)):
                uuid, name = (self._text("nvmlDeviceGet" + field, device) for field in ("UUID", "Name"))
                gpus.append((number, uuid, name, device))
        if hasattr(self._library, "nvmlSystemGetDriverVersion"):
            self.driver = self._text("nvmlSystemGetDriverVersion")
        return gpus

    def _text(self, function: str, *device: Any) -> str:
        import ctypes

        buffer = ctypes.create_string_buffer(MOST_TEXT)
        if getattr(self._library, function)(*device, buffer, ctypes.c_uint(MOST_TEXT)):
            return ""
        return buffer.value.decode("utf-8", "replace")

    def measure(self) -> list[list[float | None]]:
        """Numbers of each GPU in the order of COLUMNS."""
        return [self._measure(device) for _, _, _, device in self.devices]

    def _measure(self, device: Any) -> list[float | None]:
        import ctypes

        pair, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()
        power, degrees, reasons = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
        numbers: list[float | None] = [
            float(pair[0]) if self._call("UtilizationRates", device, ctypes.byref(pair)) else None
        ]
        has_memory = self._call("MemoryInfo", device, ctypes.byref(memory))
        numbers += [memory[2], memory[0]] if has_memory else [None, None]
        numbers.append(power.value / 1000.0 if self._call("PowerUsage", device, ctypes.byref(power)) else None)
        is_told = self._call("Temperature", device, ctypes.c_uint(0), ctypes.byref(degrees))
        numbers.append(float(degrees.value) if is_told else None)
        is_told = self._call("CurrentClocksThrottleReasons", device, ctypes.byref(reasons))
        numbers.append(float(bool(reasons.value & SLOWED)) if is_told else None)
        return numbers

    def _call(self, function: str, *arguments: Any) -> bool:
        try:
            return not getattr(self._library, "nvmlDeviceGet" + function)(*arguments)
        except AttributeError:  # an old library
            return False


def _open() -> Any:
    if not any(map(os.path.exists, DEVICES)):
        return None
    import ctypes

    return ctypes.CDLL(LIBRARY)


def _is_visible(number: int, uuid: str, visible: str | None) -> bool:
    if visible is None:
        return True
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return any(name == str(number) or (uuid and uuid.startswith(name)) for name in names)


def share(gpus: int, ranks: int, at: int) -> list[int]:
    """Which of a node's GPUs its rank number `at` has, as trainers choose them by their local rank. Pure."""
    if not gpus:
        return []
    if gpus < ranks:
        return [at % gpus]
    each = gpus // ranks
    return list(range(at * each, (at + 1) * each))
