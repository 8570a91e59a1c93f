"""The container program of this machine (podman, docker or none) as a value; names of GPUs for it; paths that are an
image's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from longboat.core.jobs import Value
from longboat.engines.local.queue.machine import Gpu

KIND = "nvidia.com/gpu"
CONTAINER_SCRATCH = "/longboat/tmp"
"""TMPDIR of the ranks in a container: short, for the sockets below it."""
GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"

_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_TOP = ("/", "/home", "/opt", "/root", "/run", "/tmp", "/var")
"""These too are the image's, but folders in them are as often the user's own data."""


class ContainerChoice(Value, frozen=True):
    """The program; None with the reason, where nothing runs containers."""

    program: str | None = None  # podman or docker
    why_not: str = ""
    mounts: dict[str, str] = {}  # targets of volumes -> folders of this machine
    devices: frozenset[str] = frozenset()  # that CDI specifications name: nvidia.com/gpu=0


def device_of(gpu: Gpu, names: frozenset[str]) -> str | None:
    """The CDI device of this GPU: by its UUID, else by its number, as specifications have the one or the other."""
    return next((name for name in (f"{KIND}={gpu.id}", f"{KIND}={gpu.index}") if name in names), None)


def is_of_image(path: str) -> bool:
    """Whether a container has its image's own files there, which ours must not hide."""
    own = PurePosixPath(path)
    return path in _TOP or any(own.is_relative_to(folder) for folder in _SYSTEM)


def hidden_links(outside: Mapping[str, str]) -> dict[str, str]:
    """Links out of the code's folder that lead to the image's files instead of this machine's, in a container."""
    return {path: target for path, target in outside.items() if is_of_image(target)}
