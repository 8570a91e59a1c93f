"""What was set for this machine: the values of `local.` in config.yaml. The fields are checked where it is read."""

from __future__ import annotations

from typing import Literal

from longboat.core.jobs import Value

Isolation = Literal["auto", "off", "required"]


class LocalSettings(Value, frozen=True):
    claims: dict[str, str] = {}  # claims of a cluster -> folders that stand for them here
    mounts: dict[str, str] = {}  # the same for absolute targets and NFS exports
    containers: str = "auto"  # what runs jobs that name an image: podman, docker, auto or off
    gpu_isolation: Isolation = "auto"  # whether runs can open the device files of their own GPUs only
    gpu_hour: float = 0.0  # price of one GPU for an hour
