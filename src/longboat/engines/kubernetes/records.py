"""What is kept about a run in its ConfigMap: the record (written once) and the state (replaced at a known version)."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Literal

import msgspec

from longboat.core.elastic.sizes import at_attempt, is_elastic, sizes
from longboat.core.errors import LAUNCHER_KILLED_CODE, RUN_REPLACED_EXIT
from longboat.core.guards.formats import Stored
from longboat.core.jobs import Job, Value
from longboat.core.runs import FINAL_PHASES, Attempt, Phase
from longboat.engines.lifecycle.predecessors import Predecessor

WorkloadKind = Literal["jobset", "job"]


class Storage(Value, frozen=True):
    """Storage for what outlives a run's pods. Exactly one of the first three is set."""

    claim: str | None = None
    nfs: str | None = None  # server:/path
    path: str | None = None  # a folder of the nodes
    folder: str = ""  # the run's own folder in it, relative

    @property
    def place(self) -> str:
        """For people: what is mounted."""
        if self.claim is not None:
            return f"claim {self.claim}"
        return f"nfs {self.nfs}" if self.nfs is not None else f"{self.path} of the nodes"


class CodeStore(Value, frozen=True):
    """Where code goes that is too large for Secrets: below a URL of an object store."""

    url: str
    secret: str | None = None  # a Secret of the namespace: variables with which pods read there


class GpuDriver(Value, frozen=True):
    """The NVIDIA driver as the nodes themselves have it, for pods that ask for GPUs."""

    folder: str  # libraries; programs in its `bin`
    libcuda: str | None = None  # the file, where it is not in the folder


class Record(Stored, frozen=True):
    """The submitted job, and what was observed of the cluster then. Immutable."""

    name: str
    uid: str
    job: Job
    namespace: str
    created: float
    user: str
    workload: WorkloadKind = "job"
    gate_s: float = 300.0  # how long a gang that was let in may take until all its pods have a node
    node_lost_s: float = 60.0  # a node of the cluster that is silent for so long is lost, and the attempt with it
    log_wait_s: float = 0.0  # how long an ended node waits for attached readers of its log
    stdin: bool = False  # the first attempt's only rank reads what the submitter passes on
    leaves_nothing: bool = False  # in its storage: a replica of a service, whose logs are those of its pod
    gated_by: str = "none"  # "none", "longboat", "kueue": who lets it in
    images: dict[str, str] = {}  # role -> image
    gpu_resource: str | None = None  # "nvidia.com/gpu", ...; "dra:CLASS": devices of that DeviceClass
    gpu_driver: GpuDriver | None = None  # what GPU pods mount of their nodes; None: the cluster brings it
    gpu_selector: dict[str, dict[str, tuple[str, ...]]] = {}  # role -> label of nodes -> values; one label suffices
    bundle: str | None = None  # hash of the code
    packs: tuple[str, ...] = ()  # Secrets that hold it, in order
    stored_packs: tuple[str, ...] = ()  # files that hold it instead, in the run's folder of its storage
    code_store: CodeStore | None = None  # holds it instead; the gang file names the objects
    launcher: str = ""  # Secret that holds the launcher
    commit: str | None = None
    dirty: bool = False
    storage: Storage | None = None
    checkpoint_dir: str = ""  # as the ranks see it
    checkpoint_store: str | None = None  # where they outlive the pods, if that is an object store
    artifacts_dir: str = ""
    resume_from: str | None = None
    after: tuple[Predecessor, ...] = ()  # runs of the namespace that must have succeeded before it starts
    secrets: dict[str, tuple[str, str]] = {}  # variable -> (Secret, key)
    security: Literal["baseline", "restricted"] = "baseline"
    queue: str | None = None  # Kueue's LocalQueue
    queue_priority: str | None = None  # Kueue's WorkloadPriorityClass
    topology: dict[str, str] = {}  # "required" or "preferred" -> label of nodes that all pods share
    pull_secrets: tuple[str, ...] = ()  # image pull Secrets
    pod: dict[str, Any] = {}  # laid over the pod template: what the settings of the context add
    service_account: str | None = None
    network_policy: bool = False  # other runs' pods are kept away from this one's
    notices: tuple[str, ...] = ()
    drill: str = ""  # what the last drill has shown: an annotation, not in the text of a live record
    later_priority: int | None = (
        None  # what `longboat priority` gave it: an annotation, not in the text of a live record
    )

    @property
    def priority(self) -> int:
        """The one that counts. `job` stays as it was submitted: a run id that is given again is compared with that."""
        return self.job.priority if self.later_priority is None else self.later_priority


class Gate(Value, frozen=True):
    """How often the run was let in and put back."""

    tries: int = 0
    let_in: float | None = None  # when; None while it waits
    not_before: float = 0.0
    fits: bool = False  # of an elastic run: its size was chosen for the room there was
    reason: str = ""  # why it waits; of a run that was let in before others, why it could be


class NodeDeparture(Value, frozen=True):
    """Nodes of the attempt under way that are about to go, by a notice of termination."""

    hosts: tuple[str, ...]
    since: float = 0.0  # when the last of them was noted
    due: float | None = None  # an elastic run ends then at the latest, to move; None: no end was told
    told: float = 0.0  # when its ranks were asked for a checkpoint


class State(Stored, frozen=True):
    phase: Phase = "pending"
    reason: str = ""
    exit_code: int | None = None
    cause: str | None = None
    started: float | None = None
    ended: float | None = None
    attempt: int = 0  # whose pods, Jobs and other objects are the latest; those before and after may share them
    attempts: tuple[Attempt, ...] = ()
    restarts: int = 0  # so many times these pods are known to have been restarted in place
    restarted: tuple[Attempt, ...] = ()  # these attempts, as pods told that have ended while others are being stopped
    not_before: float = 0.0  # the next attempt waits until then
    gate: Gate = Gate()
    released: bool = False  # the runs that it starts after have succeeded
    waits_for: tuple[str, ...] = ()  # those of them that have not ended
    succeeded: tuple[str, ...] = ()  # those of them that were seen to have succeeded, while it waits for others
    told: float = 0.0  # the stop request (its `at`) that the gang was told of
    told_when: float = 0.0
    broken: float = 0.0  # when a member of the attempt was first seen to be dead while others ran
    hosts: dict[str, str] = {}  # member of the attempt -> node that it runs on
    digests: dict[str, str] = {}  # role -> digest of the image that its first pod runs
    tails: dict[str, str] = {}  # node -> last lines, kept where pods are gone
    checkpoint: str | None = None
    step: int | None = None  # of the last attempt that told one, once it has ended
    metrics: dict[str, float] = {}
    size: int | None = None  # of an elastic run: nodes of its elastic role; None: as it was submitted
    size_reason: str = ""  # why it has no more, or what it waits for to have another number
    resizes: int = 0  # attempts so far that only changed the size
    wanted: int | None = None  # the size that it is to have from its next checkpoint on
    seen: str | None = None  # the newest checkpoint when that came to be wanted; empty: there was none
    target: int | None = None  # the attempt is being ended for this size
    departure: NodeDeparture | None = None
    facts: tuple[str, ...] = ()  # what was seen when it ended, for the post-mortem
    expired: float | None = None  # when its objects were removed; this record and what is in storage are left

    @property
    def is_final(self) -> bool:
        return self.phase in FINAL_PHASES

    @property
    def number(self) -> int:
        """The latest attempt: restarted in place, it has the pods, and the objects, of an earlier one (`attempt`)."""
        last = self.attempts[-1].number if self.attempts else 0
        return max(self.attempt, min(last, self.attempt + len(self.attempts)))  # others may write what is stored

    def is_in_place(self, number: int) -> bool:
        """Whether an attempt had the pods of the one before it."""
        return any(known.number == number and known.restart == "in-place" for known in self.attempts)

    def restarted_in(self, attempt: int) -> list[int]:
        """Attempts that were restarted in place in the pods of this one."""
        later = sorted((known.number, known.restart) for known in self.attempts if known.number > attempt)
        return [number for number, _ in takewhile(lambda each: each[1] == "in-place", later)]


def at_present(record: Record, state: State) -> Record:
    """The record of an elastic run with the job as its present attempt has it; any other as it is.

    It begins with its smallest size: no more is wanted of whoever buys machines. The gate gives it what there is.
    """
    if not is_elastic(record.job):
        return record
    size = sizes(record.job)[0] if state.size is None else state.size
    job = at_attempt(record.job, size, resizes=state.resizes, attempts=state.attempts, attempt=state.attempt)
    return msgspec.structs.replace(record, job=job)


def is_chained(record: Record, state: State) -> bool:
    """Whether it waits for other runs: it is no candidate of the gate, and holds nothing."""
    return bool(record.after) and not state.released and not state.is_final


def is_restarted_in_place(record: Record) -> bool:
    """Whether node 0's launcher may restart the ranks in their pods.

    Who pipes something in is told that the next attempt has an empty stdin: his command sees its pods come.
    """
    retries = record.job.retries
    return retries.count > 0 and retries.restart == "in-place" and not record.stdin


def replaces_pods(record: Record) -> bool:
    """Whether its Jobs make a new pod for a member that was taken away, while the others wait for it."""
    return is_restarted_in_place(record) and record.job.nodes > 1


def replaced_exits(record: Record) -> tuple[int, ...]:
    """Exit codes of launchers for which their Jobs make another pod; none where pods are not replaced.

    What kills a whole container is mostly the kernel, for want of memory: that must be tried again as well.
    """
    if not replaces_pods(record):
        return ()
    on = record.job.retries.on
    is_killed_too = not on or {"lost", "oom"} <= set(on)
    return (LAUNCHER_KILLED_CODE, RUN_REPLACED_EXIT) if is_killed_too else (RUN_REPLACED_EXIT,)


def expected_nodes(job: Job) -> list[str]:
    """Members of the gang: `worker-0`, ... The first is node 0."""
    return [f"{role.name}-{index}" for role in job.roles for index in range(role.nodes)]


def node_of_rank(job: Job, rank: int) -> tuple[str, str] | None:
    """Role and node that a rank belongs to, whichever pod it is in; None: there is no such rank."""
    first = 0
    for role in job.roles:
        count = role.nodes * role.procs
        if first <= rank < first + count:
            return role.name, f"{role.name}-{(rank - first) // role.procs}"
        first += count
    return None


def all_pods(job: Job) -> list[str]:
    """Pods of an attempt by the names that they were made with: members, and after those of each role its spares."""
    return [f"{role.name}-{index}" for role in job.roles for index in range(role.pods)]


def ranks_of(record: Record, role: str, index: int) -> range:
    """The ranks of a node: they count over roles in their order. A spare one has none."""
    first = 0
    for each in record.job.roles:
        if each.name == role:
            first += index * each.procs
            return range(first, first + each.procs) if index < each.nodes else range(0)
        first += each.nodes * each.procs
    return range(0)
