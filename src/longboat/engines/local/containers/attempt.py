"""The containers of an attempt: images there, and for each node that has one the command that starts it."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from longboat.core.jobs import Value
from longboat.engines.local.containers.cdi import device_names
from longboat.engines.local.containers.choice import CONTAINER_SCRATCH, device_of, is_of_image
from longboat.engines.local.containers.command import (
    LAUNCHER,
    ContainerSpec,
    Mount,
    container_name,
    own_limits,
    start_command,
)
from longboat.engines.local.containers.image import Images
from longboat.engines.local.containers.program import answer, program_path
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import AttemptNode, RunFiles
from longboat.engines.shared.checkpoint_store import STORES
from longboat.engines.shared.containers.launcher_file import launcher_bytes
from longboat.engines.shared.files import write_bytes, write_value


class ContainerStart(Value, frozen=True):
    """How a node's launcher is started in its container."""

    image: str
    command: tuple[str, ...]
    variables: dict[str, str]  # told on stdin, where nobody else sees them


class AttemptContainers:
    """Containers of one attempt."""

    def __init__(self, record: LocalRecord, files: RunFiles, attempt: int) -> None:
        assert record.containers is not None
        self._program = record.containers
        self._record = record
        self._files = files
        self._attempt = attempt
        self._images: dict[str, str] = {}

    def provide(self, report: Callable[[str], None], check: Callable[[], None]) -> None:
        """Every image is on this machine. Raises ImageFailed."""
        images = Images(self._program, report, check)
        for image in dict.fromkeys(role.image for role in self._record.job.roles if role.image):
            self._images[image] = images.provide(image)
        ids = {image: images.ids.get(name, "") for image, name in self._images.items()}
        write_value(self._files.images, ids)
        write_bytes(self._launcher, launcher_bytes())

    def starts(
        self,
        nodes: Sequence[AttemptNode],
        gpus: Sequence[Sequence[Gpu]],
        inputs: Iterable[Path],
        secrets: Mapping[str, str],
    ) -> dict[str, ContainerStart]:
        """Start commands by node name. `inputs`: folders of this machine that working copies link to."""
        variables = {**self._store_variables(), **secrets}
        mounts = self._mounts(inputs)
        names = device_names() if any(gpus) else frozenset[str]()
        user = user_of(self._program)
        starts = {}
        for node, given in zip(nodes, gpus, strict=True):
            image = self._record.job.role(node.layout.role).image
            if image is not None:
                devices = tuple(name for gpu in given if (name := device_of(gpu, names)))
                spec = self._spec(node, self._images[image], user, mounts, devices)
                command = tuple(start_command(spec, os.fspath(node.plan)))
                starts[node.name] = ContainerStart(image=image, command=command, variables=variables)
        return starts

    def _spec(
        self, node: AttemptNode, image: str, user: str, mounts: tuple[Mount, ...], devices: tuple[str, ...]
    ) -> ContainerSpec:
        record = self._record
        scratch = Mount(source=os.fspath(node.directory / "scratch"), target=CONTAINER_SCRATCH)
        has_ipc = os.getuid() == 0 or os.path.isdir("/dev/mqueue")  # which podman without privileges mounts as well
        shared = () if has_ipc else (Mount(source="/dev/shm", target="/dev/shm"),)
        return ContainerSpec(
            program=self._program,
            path=program_path(self._program, os.environ),
            image=image,
            name=container_name(record.name, record.uid, self._attempt, node.name),
            run=record.name,
            uid=record.uid,
            user=user,
            mounts=(*mounts, scratch, *shared),
            has_ipc=has_ipc,
            marks={
                "LONGBOAT_RUN_UID": record.uid,
                "LONGBOAT_NODE": node.name,
                "LONGBOAT_ATTEMPT": str(self._attempt),
            },
            devices=devices,
            limits=_limits(),
        )

    @property
    def _launcher(self) -> Path:
        return self._files.directory / "launcher.pyz"

    def _mounts(self, inputs: Iterable[Path]) -> tuple[Mount, ...]:
        """Each folder at its own path, so that every path in the plan means the same inside and outside."""
        own = [self._files.directory, Path(self._record.checkpoint_dir)]
        own += [Path(self._record.in_place)] if self._record.in_place else []
        linked = [target for target in self._record.outside.values() if not is_of_image(target)]
        own += [path for target in linked if (path := Path(target)).is_absolute() and path.exists()]
        volumes = [
            Path(volume.path) for volume in self._record.job.volumes if volume.path and os.path.isabs(volume.path)
        ]
        folders = outermost(os.path.abspath(path) for path in (*own, *inputs, *volumes))
        moved = [Mount(source=folder, target=target) for target, folder in self._record.mounts.items()]
        launcher = Mount(source=os.fspath(self._launcher), target=LAUNCHER, read_only=True)
        return (*(Mount(source=path, target=path) for path in folders), *moved, launcher)

    def _store_variables(self) -> dict[str, str]:
        """Variables with which the launcher reaches the object store of the checkpoints."""
        if self._record.checkpoint_store is None:
            return {}
        return {name: value for name, value in os.environ.items() if name.startswith(STORES)}


def outermost(paths: Iterable[str]) -> list[str]:
    """These paths less those inside another of them, which come with it.

    A mount of its own would keep a folder from being renamed: the checkpoint that a run resumes from could not be
    replaced by a newer one of the same step.
    """
    distinct = list(dict.fromkeys(paths))

    def is_inside(path: str, other: str) -> bool:
        """By its name and in truth: a link may lead out of a folder."""
        pairs = ((path, other), (os.path.realpath(path), os.path.realpath(other)))
        return path != other and all(os.path.commonpath(pair) == pair[1] for pair in pairs)

    return [path for path in distinct if not any(is_inside(path, other) for other in distinct)]


def user_of(program: str) -> str:
    """The user in the container that is the caller outside: root in rootless podman or docker, else the same ids."""
    if program == "docker" and os.getuid() != 0:
        info = answer(program, ["info", "--format", "{{.SecurityOptions}}"], os.environ)
        if "rootless" not in info.stdout:
            return f"{os.getuid()}:{os.getgid()}"
    return "0:0"


def _limits() -> tuple[str, ...]:
    limits = {
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "nproc": resource.getrlimit(resource.RLIMIT_NPROC)[1],
    }
    try:
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        most = 32768  # the kernel's own default
    return own_limits(limits, most)
