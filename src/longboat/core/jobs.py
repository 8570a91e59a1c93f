"""The Job: what the user asks for, checked and normalised. Values only; text becomes a Job in `specs`.

A Job always has roles: a job file without `roles` has one role named `worker`. What a job file says at its top level
(image, env, gpus, ...) has already been filled into every role, so nothing downstream looks in two places.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Command = str | tuple[str, ...]
"""A string is run by the shell, a tuple is executed as it is."""

Framework = Literal["torch", "tensorflow", "jax", "mpi", "none"]
Access = Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"]
ACCESS: tuple[Access, ...] = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
Medium = Literal["disk", "memory"]
Grow = Literal["checkpoint", "never", "now"]
GROWS: tuple[Grow, ...] = ("checkpoint", "never", "now")
BatchOf = Literal["rank", "global"]
BATCHES: tuple[BatchOf, ...] = ("rank", "global")

FRAMEWORKS: tuple[Framework, ...] = ("torch", "tensorflow", "jax", "mpi", "none")

Scalar = bool | int | float | str
SweepMethod = Literal["grid", "random", "tpe", "asha", "optuna"]
METHODS: tuple[SweepMethod, ...] = ("grid", "random", "tpe", "asha", "optuna")
SweepSampler = Literal["tpe", "cmaes", "gp", "qmc", "nsga"]
SAMPLERS: tuple[SweepSampler, ...] = ("tpe", "cmaes", "gp", "qmc", "nsga")
Goal = Literal["min", "max"]

DEFAULT_ROLE = "worker"
EVALUATOR_ROLES = ("evaluator", "eval")
"""Roles that judge checkpoints beside the training, and are no part of its cluster."""
PASSIVE_ROLES = ("ps", *EVALUATOR_ROLES)
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
    nodes: int = 1  # that are laid out
    min_nodes: int | None = None  # of an elastic role, which may have so few (`core.elastic`)
    max_nodes: int | None = None
    nodes_before: int | None = None  # of an elastic role, in the attempt before
    spares: int = 0  # nodes without ranks, that wait to take the place of a lost one
    procs: int = 1  # per node; `auto` is resolved already (one per GPU, else 1)
    image: str | None = None
    env: dict[str, str] = {}
    resources: Resources = Resources()

    @property
    def pods(self) -> int:
        """Nodes that are laid out, and spare ones: all of them hold what the role asks for."""
        return self.nodes + self.spares


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


class Keep(Value, frozen=True):
    """Which complete checkpoints are kept. The rule itself: `storage.retention`."""

    last: int = 3  # the newest so many; 0 keeps all
    best: int = 0  # besides, so many with the best metric
    metric: str | None = None
    goal: Literal["max", "min"] = "max"
    every_s: float | None = None  # besides, one for each period of this length


class Checkpoints(Value, frozen=True):
    to: str | None = None  # folder, relative to the job's workdir; a folder per run is made inside
    keep: int | Keep = 3  # how many complete ones are kept; 0 keeps all
    resume: str | None = None  # start from the newest complete checkpoint of this run (by name) or folder

    @property
    def rule(self) -> int | dict[str, object]:
        """`keep` as plain data, which `storage.retention` reads."""
        return self.keep if isinstance(self.keep, int) else msgspec.to_builtins(self.keep)


class Retries(Value, frozen=True):
    count: int = 0
    on: tuple[int | str, ...] = ()  # exit codes and causes; empty means any failure
    backoff_s: float = 1.0  # before the first retry, doubling up to a minute
    restart: Literal["in-place", "new"] = "in-place"  # of ranks whose launchers live; "new": everything is made anew
    resizes: int = 0  # attempts of an elastic run so far that only changed its size, and were no retries

    @property
    def last_attempt(self) -> int:
        """The number of the last attempt that there may be."""
        return self.count + self.resizes


class Range(Value, frozen=True):
    """A parameter of a sweep between two bounds, both included."""

    low: float
    high: float
    is_log: bool = False  # every order of magnitude is as likely
    is_whole: bool = False
    step: float | None = None  # only low, low + step, ...

    @property
    def size(self) -> int:
        """Points of a range with a step, both bounds included."""
        return math.floor((self.high - self.low) / (self.step or 1.0) + 1e-9) + 1  # 0.3 / 0.1 is a little less than 3


class Metric(Value, frozen=True):
    """What a sweep compares trials by: a number that the trainer reports with its steps."""

    name: str
    goal: Goal = "min"


class SweepStop(Value, frozen=True):
    """When trials are stopped early, and when the sweep is."""

    steps: int = 1  # asha: a trial is compared first when it has come so far
    factor: int = 3  # asha: the best of so many go on, and are compared again at so many times the steps
    failures: int | None = None  # the sweep ends when so many trials have failed
    target: float | None = None  # the sweep ends when a trial's metric is as good as this


class Sweep(Value, frozen=True):
    """The search space of a job, and how it is searched."""

    space: dict[str, tuple[Scalar, ...] | Range]
    method: SweepMethod = "grid"
    sampler: SweepSampler = "tpe"  # of optuna
    trials: int | None = None  # None: every point of the grid
    parallel: int = 4  # trials that are under way at once
    metric: Metric | None = None  # None: the loss, or the only metric that trials report
    stop: SweepStop = SweepStop()


class Serve(Value, frozen=True):
    """How checkpoints of the job's runs are served over HTTP: one server process per replica."""

    run: Command | None = None  # listens on $PORT; None: given on the command line
    replicas: int = 1  # at least so many
    max_replicas: int | None = None  # scaled up to so many; None: not scaled
    in_flight: int = 8  # requests in flight per replica that are scaled for
    port: int | None = None  # of the service's address; None: a free one
    ingress: str | None = None  # in a cluster: the host name under which it is reached from outside
    ready: str | None = None  # path that answers 2xx or 3xx once the replica may be asked; None: it accepts connections
    live: str | None = None  # path that is asked while it runs; None: the same as `ready`
    golden: bool = True  # whether a replica must give the golden answers of its checkpoint
    tolerance: float | None = None  # of golden answers; None: as they were saved
    start_s: float = 600.0  # until the first readiness: large models take minutes to load
    drain_s: float = 30.0  # for requests in flight when a replica goes
    resources: Resources = Resources()  # of one replica
    follow: Literal["newest", "best", "promoted"] | None = None  # checkpoints that replace the one that is served

    @property
    def most(self) -> int:
        return max(self.replicas, self.max_replicas or 0)


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
    grow: Grow = "checkpoint"  # when an elastic job takes more nodes, once there is room
    batch: BatchOf = "rank"  # what `longboat.batch_size` is given: each rank's, or that of all ranks together
    grace_s: float = 30.0  # as Kubernetes gives pods
    stall_s: float | None = None  # a rank without a step or an output line for this long is hung; None: only reported
    queue: str | None = None
    priority: int = 0
    after: tuple[str, ...] = ()  # runs that must have succeeded before this one starts
    labels: dict[str, str] = {}
    aliases: tuple[str, ...] = ()  # "skypilot", "dstack": their variables are set too
    params: dict[str, Scalar] = {}  # parameters of this run: LONGBOAT_PARAM_*, `longboat.params()`
    sweep: Sweep | None = None  # only in what trials are made of, never in a job that is run
    serve: Serve | None = None

    @property
    def nodes(self) -> int:
        return sum(role.nodes for role in self.roles)

    @property
    def pods(self) -> int:
        return sum(role.pods for role in self.roles)

    @property
    def spares(self) -> int:
        return sum(role.spares for role in self.roles)

    @property
    def ranks(self) -> int:
        return sum(role.nodes * role.procs for role in self.roles)

    @property
    def gpus(self) -> int:
        """GPUs of the whole job, those of spare nodes too."""
        return sum(role.pods * role.resources.gpus.count for role in self.roles)

    def role(self, name: str) -> Role:
        return next(role for role in self.roles if role.name == name)
