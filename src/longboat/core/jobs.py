"""The Job: what the user asks for, checked and normalised. Values only; text becomes a Job in `specs`.

A Job always has roles: a job file without `roles` has one role named `worker`. What a job file says at its top level
(image, env, gpus, ...) has already been filled into every role, so nothing downstream looks in two places.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Command = str | tuple[str, ...]
"""A string is run by the shell, a tuple is executed as it is."""

Framework = Literal["torch", "tensorflow", "jax", "mpi", "none"]
Access = Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"]
ACCESS: tuple[Access, ...] = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
Medium = Literal["disk", "memory"]

FRAMEWORKS: tuple[Framework, ...] = ("torch", "tensorflow", "jax", "mpi", "none")

DEFAULT_ROLE = "worker"
PASSIVE_ROLES = ("ps", "evaluator")
"""Roles that do not decide success unless `ends` names them."""

CAUSES = (
    "exception",  # a Python traceback and a non-zero exit
    "exit",  # a non-zero exit without a traceback
    "signal",  # a rank died of a signal
    "oom",  # out of memory: the kernel, the memory limit, or the GPU's allocator
    "hang",  # no progress for longer than `stall`
    "timeout",  # the run's own `timeout`
    "lost",  # launcher, supervisor, node or machine vanished
    "preemption",  # the engine took the machine away
    "peers",  # not all nodes found each other
    "setup",  # the setup command failed
    "data",  # a data import failed
    "image",  # the image could not be used
    "dependency",  # a run that it was to start after did not succeed
)
"""Why a run failed; `retries.on` takes these names and exit codes."""

MOST_AFTER = 16
"""Runs that one waits for: each is looked at as long as it waits."""

NEVER_RETRIED = ("timeout", "dependency")


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all values: immutable, keyword-only, unknown stored fields ignored when read back."""


class Gpus(Value, frozen=True):
    count: int = 0
    type: str | None = None
    memory: int | None = None  # bytes per GPU, at least


class Resources(Value, frozen=True):
    """What one node of a role needs."""

    gpus: Gpus = Gpus()
    cpus: float | None = None
    memory: int | None = None  # bytes
    shm: int | None = None  # bytes
    disk: int | None = None  # bytes


class Role(Value, frozen=True):
    name: str
    run: Command
    nodes: int = 1
    procs: int = 1  # per node; `auto` is resolved already (one per GPU, else 1)
    image: str | None = None
    env: dict[str, str] = {}
    resources: Resources = Resources()


class Secret(Value, frozen=True):
    """A secret by name; the value is read when the run starts and is never part of a Job."""

    name: str  # the environment variable the ranks see
    env: str | None = None  # read from this variable of the submitter (default: same name)
    file: str | None = None  # read from this file
    store: str | None = None  # read from the engine's own store


class Volume(Value, frozen=True):
    """Exactly one of claim, path, nfs, scratch is set."""

    target: str  # where the ranks see it
    claim: str | None = None  # a PersistentVolumeClaim
    path: str | None = None  # a folder of the machine
    nfs: str | None = None  # server:/path
    scratch: bool = False  # empty at start, gone at the end
    read_only: bool = False
    size: int | None = None  # bytes; of a claim: it is made if it does not exist; of scratch: no more than this
    storage_class: str | None = None  # of a claim that is made
    access: Access | None = None  # of a claim that is made
    medium: Medium = "disk"  # of scratch


class DataImport(Value, frozen=True):
    url: str
    to: str
    sha256: str | None = None
    unpack: bool = True


class Checkpoints(Value, frozen=True):
    to: str | None = None  # folder, relative to the job's workdir; a folder per run is made inside
    keep: int = 3  # how many complete ones are kept; 0 keeps all
    resume: str | None = None  # start from the newest complete checkpoint of this run (by name) or folder


class Retries(Value, frozen=True):
    count: int = 0
    on: tuple[int | str, ...] = ()  # exit codes and causes; empty means any failure
    backoff_s: float = 1.0  # before the first retry, doubling up to a minute


class Job(Value, frozen=True):
    name: str
    roles: tuple[Role, ...]
    framework: Framework = "none"
    framework_reason: str = "not given"  # why this framework: "given", "the command is torchrun", ...
    ends: tuple[str, ...] = ()  # roles that decide success; filled by specs, never empty
    setup: str | None = None
    workdir: str | None = "."  # where the code is, relative to the job file; None: no code travels
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    volumes: tuple[Volume, ...] = ()
    data: tuple[DataImport, ...] = ()
    checkpoints: Checkpoints = Checkpoints()
    artifacts: tuple[str, ...] = ()  # glob patterns inside the working copy, kept after the end
    retries: Retries = Retries()
    timeout_s: float | None = None
    grace_s: float = 30.0
    stall_s: float | None = None  # a rank without a step or an output line for this long is hung; None: only reported
    queue: str | None = None
    priority: int = 0
    after: tuple[str, ...] = ()  # runs that must have succeeded before this one starts
    labels: dict[str, str] = {}
    aliases: tuple[str, ...] = ()  # "skypilot", "dstack": their variables are set too

    @property
    def nodes(self) -> int:
        return sum(role.nodes for role in self.roles)

    @property
    def ranks(self) -> int:
        return sum(role.nodes * role.procs for role in self.roles)

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return sum(role.nodes * role.resources.gpus.count for role in self.roles)

    def role(self, name: str) -> Role:
        return next(role for role in self.roles if role.name == name)
