"""Runs as they are observed: phase, outcome, the report of a rank, the status a user sees. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from longboat.core.jobs import Job, Scalar, Value

Phase = Literal["pending", "starting", "running", "recovering", "succeeded", "failed", "stopped"]
REPLICA_OF = "longboat.dev/service"
"""Label of a run that is a replica: the uid of its service."""
SWEEP_UID = "sweep-uid"
"""Label of trials. The name of a run may be another's by now: one without this label of the sweep is not its trial."""
FINAL_PHASES: tuple[Phase, ...] = ("succeeded", "failed", "stopped")


def unowned(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels without those of a replica or a trial: a run that is made from one of them is neither."""
    own = (REPLICA_OF, SWEEP_UID, "sweep", "trial") if SWEEP_UID in labels else (REPLICA_OF,)
    return {name: value for name, value in labels.items() if name not in own}


class RankReport(Value, frozen=True):
    """How one rank ended, as its launcher saw it (`rank-<r>.json`)."""

    rank: int
    role: str = ""
    node: str = ""
    pid: int = 0
    exit_code: int | None = None  # 128 + n for signal n
    signal: int | None = None
    started: float = 0.0  # seconds since the epoch
    ended: float = 0.0
    ended_ns: int = 0  # monotonic: orders the ends of ranks on one machine
    ended_by: str | None = None  # None: by itself; else "stop", "failure", "timeout", "hang", "success", "lost"
    cause: str | None = None  # one of jobs.CAUSES when it failed by itself
    message: str = ""  # one line: the exception, the signal, the limit
    traceback: str = ""
    stacks: str = ""  # Python stacks of every thread, when they were asked for
    tail: tuple[str, ...] = ()  # the last lines
    memory_peak: int | None = None  # bytes
    memory_limit: int | None = None
    step: int | None = None


class Failure(Value, frozen=True):
    """Why an attempt failed: the first culprit."""

    cause: str
    exit_code: int
    message: str
    rank: RankReport | None = None  # None when no rank is to blame
    tail: tuple[str, ...] = ()  # the last lines, where no rank's report has them


class Attempt(Value, frozen=True):
    number: int
    started: float
    ended: float | None = None
    failure: Failure | None = None
    resumed_from: str | None = None  # the checkpoint it started from
    restart: Literal["", "in-place", "new"] = ""  # how a retry was started; "": the first attempt, or not told
    replaced: tuple[str, ...] = ()  # nodes that got new pods, while the others were restarted in place
    spares: dict[str, str] = {}  # of these, whose place a spare took: the name that its pod was made with
    running: float | None = None  # when its ranks ran
    size: int | None = None  # nodes of the elastic role; None: the job has one size
    gpus: int | None = None  # of an elastic run: that it had
    resized: str = ""  # why it was ended although nothing was wrong: the next one has another size


TimelinePhase = Literal["queued", "pulling", "setup", "training", "recovering"]


class PhaseSpan(Value, frozen=True):
    """A part of a run's timeline."""

    phase: TimelinePhase
    started: float
    ended: float | None = None  # None: it goes on
    attempt: int = 0  # counted from 0
    reason: str = ""


class RankUsage(Value, frozen=True):
    """What a rank uses: means of the last minute, as its launcher samples them."""

    cpu: float | None = None  # cores
    memory: float | None = None  # bytes
    disk_read: float | None = None  # bytes per second
    disk_write: float | None = None
    gpu: float | None = None  # percent
    gpu_memory: float | None = None  # bytes
    gpu_power: float | None = None  # watts
    gpu_temperature: float | None = None  # degrees Celsius
    gpu_throttle: float | None = None  # share of the time in which the GPUs slowed themselves down
    gpu_idle_s: float | None = None  # for how long they have computed nothing
    gpu_throttled_s: float | None = None  # in the whole attempt
    steps_per_s: float | None = None  # of late
    pace_steps: float | None = None  # so many steps tell that
    not_finite: dict[str, int] = {}  # metric -> the first step at which it was no finite number


class RankStatus(Value, frozen=True):
    rank: int
    role: str
    node: str
    alive: bool
    step: int | None = None
    metrics: dict[str, float] = {}
    silent_s: float | None = None  # since the last step or output
    exit_code: int | None = None
    usage: RankUsage = RankUsage()


def latest_step(ranks: Iterable[RankStatus]) -> tuple[int | None, dict[str, float]]:
    """The highest step of any rank, and the metrics that came with it."""
    steps = [(rank.step, -rank.rank, rank.metrics) for rank in ranks if rank.step is not None]
    if not steps:
        return None, {}
    step, _, metrics = max(steps, key=lambda entry: entry[:2])
    return step, metrics


class NodeTrouble(Value, frozen=True):
    """What speaks against a node of the cluster that ranks of a run are on."""

    node: str  # of the cluster
    members: tuple[str, ...]  # of the run: worker-1, ...
    ranks: tuple[int, ...]
    what: str
    since: float | None = None
    follows: str = ""  # what becomes of the run


class SpareNode(Value, frozen=True):
    """A node without ranks, which waits to take the place of a lost one."""

    node: str  # worker-4
    pod: str
    host: str | None = None
    is_ready: bool = False  # it has prepared itself
    since: float | None = None  # when its container started


class RunStatus(Value, frozen=True):
    """One run, observed at one moment. `longboat ps -o json` prints these fields (without ranks)."""

    name: str
    uid: str
    job: str
    phase: Phase
    engine: str
    created: float
    nodes: int
    gpus: int
    size: str = ""  # of an elastic run: "4 of 2-8 nodes"
    size_reason: str = ""  # why it has no more nodes, or what is to change
    resizes: int = 0  # attempts so far that only changed the size; they are no retries
    exit_code: int | None = None
    started: float | None = None  # first rank of the first attempt
    ended: float | None = None
    attempt: int = 0  # counted from 0
    retries: int = 0
    reason: str = ""  # what it waits for, why it failed, what is being done about it
    cause: str | None = None
    user: str = ""
    command: str = ""
    labels: dict[str, str] = {}
    params: dict[str, Scalar] = {}  # of a trial, or given by the job
    priority: int = 0
    step: int | None = None  # the highest that a rank reported
    metrics: dict[str, float] = {}  # what that rank reported with it
    steps_per_s: float | None = None  # of late; as all that follows up to `findings`, of one run in full
    step_s: float | None = None  # seconds per step
    data_share: float | None = None  # of the time per step that ranks wait for data, where they report `data_s`
    gpu_hours: float | None = None
    findings: tuple[str, ...] = ()  # idle GPUs, stragglers, throttling, a loss that is no number
    checkpoint: str | None = None  # newest complete one
    checkpoint_dir: str | None = None
    artifacts_dir: str | None = None
    directory: str | None = None
    disk: int | None = None  # bytes of its folder on this machine; only where somebody asked for one run
    expired: float | None = None  # when its objects were removed from the cluster
    left: tuple[str, ...] = ()  # what there still is of an expired run, and where
    drill: str = ""  # what the last recovery drill with it has shown
    next_attempt: float | None = None  # when it is made, while no attempt is under way
    attempts: tuple[Attempt, ...] = ()
    ranks: tuple[RankStatus, ...] = ()
    node_troubles: tuple[NodeTrouble, ...] = ()
    spares: tuple[SpareNode, ...] = ()
    timeline: tuple[PhaseSpan, ...] = ()
    images: dict[str, str] = {}  # role -> image with its digest, where that was seen; of one run in full
    spec: Job | None = None

    @property
    def is_final(self) -> bool:
        return self.phase in FINAL_PHASES

    @property
    def is_replica(self) -> bool:
        """Whether it serves a checkpoint: nobody means it by "the latest run"."""
        return REPLICA_OF in self.labels


class LogLine(Value, frozen=True):
    """One line of one rank. `data` keeps its bytes as they were, with the newline if there was one."""

    role: str
    node: str  # "worker-0"
    rank: int
    stream: str  # "out" or "err"
    time: float
    attempt: int
    data: bytes


class LogQuery(Value, frozen=True):
    follow: bool = False
    ranks: tuple[int, ...] = ()  # empty: all
    roles: tuple[str, ...] = ()
    since: float | None = None  # seconds since the epoch
    until: float | None = None  # lines that were whole by then; without `follow`
    tail: int | None = None  # last lines, per rank
    tail_of_all: bool = False  # of all ranks together: what is kept meanwhile does not grow with their number
    tail_bytes: int | None = None  # with `tail`: no more of any file is read, where the engine reads files
    attempt: int | None = None  # None: all attempts, in order
    grep: tuple[str, ...] = ()  # regular expressions: only lines that match one of them; `tail` counts these
    grep_bytes: int | None = None  # of each line that are looked at; None: all
    grep_apart: bool = False  # searched in a process of its own, which ends where that takes too long
    ignore_case: bool = False
    invert_match: bool = False  # only lines that match none
    pieces: bool = False  # with `follow`: what there is of an unfinished line at once, the rest of it as it comes


class PruneQuery(Value, frozen=True):
    """Which ended runs are to be removed. A moment, not an age: what is shown first and removed then are the same."""

    ended_before: float  # seconds since the epoch
    phases: tuple[Phase, ...] = FINAL_PHASES
    dry_run: bool = False  # only say what would be removed
    all_users: bool = False  # those of others too, where several submit to one place
    checkpoints: bool = False  # also what runs left that were removed before that moment


class PrunedItem(Value, frozen=True):
    """One thing that was removed, or would be."""

    kind: Literal[
        "run", "sweep", "environment", "data", "checkpoints"
    ]  # the last: of a removed run; the others: kept for runs, and no run needs it any more
    name: str
    phase: Phase | None = None
    ended: float | None = None
    user: str = ""
    size: int | None = None  # bytes on the disk; None: not known
    problem: str | None = None  # why it could not be removed


class Explanation(Value, frozen=True):
    """The post-mortem (or the reason for waiting) in order: what happened, the lines that show it, what to do."""

    run: str
    phase: Phase
    headline: str
    cause: str | None = None
    facts: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
