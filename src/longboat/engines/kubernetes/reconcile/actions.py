"""Actions of a run's reconcile loop, and the Decision that lists them. Values only: `decide` chooses, `apply` acts."""

from __future__ import annotations

from longboat.core.jobs import Value
from longboat.engines.kubernetes.records import State


class CreateAttempt(Value, frozen=True, tag=True):
    """Make the objects of an attempt."""

    attempt: int


class Admit(Value, frozen=True, tag=True):
    """Ask the gate; it unsuspends the attempt or says what it waits for."""

    attempt: int


class Release(Value, frozen=True, tag=True):
    """Take the mark of a chained run off: from now on it waits for room like others."""

    attempt: int


class SendStop(Value, frozen=True, tag=True):
    """Have the gang stop, through the launcher in this pod."""

    pod: str
    grace_s: float


class DeleteWorkloads(Value, frozen=True, tag=True):
    """Delete the workloads of an attempt, and so its pods."""

    attempt: int
    grace_s: float | None = None
    is_lost: bool = False  # some of its pods are on lost nodes: the workloads go first, not after their pods


class ForceDelete(Value, frozen=True, tag=True):
    """Delete a pod whose node is lost, without waiting for that node."""

    pod: str
    uid: str


class Delete(Value, frozen=True, tag=True):
    """Delete a pod that does not end, and leave the others, which have something to say, alone."""

    pod: str
    uid: str


class Resize(Value, frozen=True, tag=True):
    """Note that the gang is to end for another size, once its launcher has a newer checkpoint than was seen."""

    pod: str
    size: int
    waits: bool


class EndForSize(Value, frozen=True, tag=True):
    """Have the gang end through the launcher in this pod, once it is noted why: otherwise it would look like a stop by
    the user. A launcher that cannot be reached is told again later."""

    pod: str
    grace_s: float


class AskToSave(Value, frozen=True, tag=True):
    """Have all ranks asked for a checkpoint soon, through the launcher in this pod."""

    pod: str


Action = (
    AskToSave
    | EndForSize
    | Resize
    | CreateAttempt
    | Admit
    | Release
    | SendStop
    | DeleteWorkloads
    | ForceDelete
    | Delete
)


class Decision(Value, frozen=True):
    state: State | None = None  # written before the actions
    actions: tuple[Action, ...] = ()
    after: State | None = None  # written after them
    again_at: float | None = None  # when to look again although nothing has changed
