"""What runs containers on this machine, as a value, and the names of GPUs for it. Pure."""

from __future__ import annotations

from longboat.core.jobs import Value
from longboat.engines.local.submit.machine import Gpu

KIND = "nvidia.com/gpu"
GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


class ContainerChoice(Value, frozen=True):
    """The program; None with the reason, where nothing runs containers."""

    program: str | None = None  # podman or docker
    why_not: str = ""
    mounts: dict[str, str] = {}  # targets of volumes -> folders of this machine
    devices: frozenset[str] = frozenset()  # that CDI specifications name: nvidia.com/gpu=0


def device_of(gpu: Gpu, names: frozenset[str]) -> str | None:
    """The CDI device of this GPU: by its UUID, else by its number, as specifications have the one or the other."""
    return next((name for name in (f"{KIND}={gpu.id}", f"{KIND}={gpu.index}") if name in names), None)
