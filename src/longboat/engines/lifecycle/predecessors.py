"""Chains of runs: whether a run may start after those that its job names (`after`). Pure.

A predecessor is known by its name and its uid: a new run that got the name of a removed one is another run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from longboat.core.errors import NotFound, Refused
from longboat.core.jobs import MOST_AFTER, Job, Value
from longboat.core.runs import FINAL_PHASES, Phase, RunStatus
from longboat.core.words import listing


class Predecessor(Value, frozen=True):
    """A run that must have succeeded."""

    run: str
    uid: str


class PredecessorView(Value, frozen=True):
    """A predecessor as observed now."""

    uid: str
    phase: Phase
    exit_code: int | None = None


class ChainVerdict(Value, frozen=True):
    action: Literal["start", "wait", "never"]
    reason: str = ""
    waits_for: tuple[str, ...] = ()
    succeeded: tuple[str, ...] = ()  # to be remembered: they may be removed while the others go on


def judge_chain(
    after: Sequence[Predecessor], seen: Mapping[str, PredecessorView], succeeded: Collection[str] = ()
) -> ChainVerdict:
    """Whether the run starts, waits, or never starts since a predecessor failed, was stopped or is gone.

    `succeeded`: those that an earlier look saw succeed. They do not change any more, and need not be there.
    """
    waited: list[tuple[str, Phase]] = []
    done: list[str] = []
    for wanted in after[:MOST_AFTER]:
        if wanted.run in succeeded:
            done.append(wanted.run)
            continue
        view = seen.get(wanted.run)
        if view is None or view.uid != wanted.uid:
            return _never(wanted.run, "was removed before this run could see that it had succeeded")
        if view.phase == "failed":
            code = f" (exit code {view.exit_code})" if view.exit_code is not None else ""
            return _never(wanted.run, f"failed{code}")
        if view.phase == "stopped":
            return _never(wanted.run, "was stopped")
        if view.phase not in FINAL_PHASES:
            waited.append((wanted.run, view.phase))
        else:
            done.append(wanted.run)
    if not waited:
        return ChainVerdict(action="start")
    shown = listing([f"{run} ({phase})" for run, phase in waited], 4)
    return ChainVerdict(
        action="wait",
        reason=f"waits until {shown} has succeeded",
        waits_for=tuple(run for run, _ in waited),
        succeeded=tuple(done),
    )


def _never(run: str, words: str) -> ChainVerdict:
    return ChainVerdict(action="never", reason=f"it was to start after {run}, which {words}")


def predecessors_of(job: Job, status_of: Callable[[str], RunStatus]) -> tuple[Predecessor, ...]:
    """The runs that the job names. Raises Refused where it could never start."""
    known = []
    for name in job.after:
        try:
            status = status_of(name)
        except NotFound as error:
            raise NotFound(f"after: {error.message}", hint=error.hint) from None
        if status.phase in ("failed", "stopped"):
            ending = "failed" if status.phase == "failed" else "was stopped"
            raise Refused(
                f"after: {name} {ending}, so this run could never start",
                hint=f"longboat rerun {name}, then give the new run to --after",
            )
        known.append(Predecessor(run=name, uid=status.uid))
    return tuple(known)
