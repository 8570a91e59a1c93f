"""The NVIDIA driver of the nodes in pods, for clusters that do not bring it: mounted where CUDA images look. Pure.

The launcher puts the folders in front of LD_LIBRARY_PATH and PATH: what an image sets there itself stays.
"""

from __future__ import annotations

from typing import Any

from longboat.core.jobs import Role
from longboat.engines.kubernetes.records import GpuDriver, Record

Object = dict[str, Any]

LIB, BIN, LIB64 = (f"/usr/local/nvidia/{name}" for name in ("lib", "bin", "lib64"))


def driver_of(record: Record, role: Role) -> GpuDriver | None:
    return record.gpu_driver if role.resources.gpus.count else None


def driver_volumes(record: Record, role: Role) -> tuple[list[Object], list[Object]]:
    """The pod's `volumes` and the container's `volumeMounts`."""
    driver = driver_of(record, role)
    if driver is None:
        return [], []
    # A driver that is not there must be told: an empty folder made in its place would look like a broken image.
    places = [("nvidia-lib", driver.folder, "Directory", LIB), ("nvidia-bin", f"{driver.folder}/bin", "Directory", BIN)]
    if driver.libcuda is not None:
        places.append(("nvidia-libcuda", driver.libcuda, "File", f"{LIB64}/libcuda.so.1"))
    volumes = [{"name": name, "hostPath": {"path": path, "type": kind}} for name, path, kind, _ in places]
    return volumes, [{"name": name, "mountPath": target, "readOnly": True} for name, _, _, target in places]


def driver_paths(record: Record, role: Role) -> dict[str, list[str]]:
    """What the gang file says of a role: folders in front of PATH and of LD_LIBRARY_PATH."""
    if driver_of(record, role) is None:
        return {}
    return {"path_prepend": [BIN], "library_path": [LIB, LIB64]}
