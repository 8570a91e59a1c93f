"""Steps of a run that moves on where it waits too long: never in two places. Pure.

A place is left only when it was seen that the run has ended there, or that it never was there; until then no other
place is given it. Who does not answer is waited for: it may have the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from longboat.core.jobs import Value
from longboat.core.runs import RunStatus

Step = Literal["submit", "wait", "leave", "refused"]
Verdict = Literal["settled", "wait", "ask", "stop", "left", "removed"]


class FailoverState(Value, frozen=True):
    """Where a run is on its way; written down before each step, so that whoever comes after a crash goes on there."""

    run: str
    places: tuple[str, ...]  # that were given the run, the present one last
    step: Step = "submit"
    since: float = 0.0  # when the present place was given it
    next: str = ""  # where it goes once it has left
    refused: str = ""  # why the present place did not take it; at the step `refused`: why it runs nowhere
    job: str = ""  # digest of the job that is submitted
    uid: str = ""  # of the run at the present place, once it is known: another run of its name is not touched
    left_uid: str = ""  # of the run at the place before
    is_stopping: bool = False  # it is stopped here by whoever moves it; a stop of anybody else is not undone
    code: str | None = None  # of the first submission, once it is known; with `outside` and `root` as submitted
    outside: Mapping[str, str] | None = None
    root: str = ""

    @property
    def at(self) -> str:
        return self.places[-1]

    @property
    def is_moved(self) -> bool:
        return len(self.places) > 1


def judge_waiting(status: RunStatus, waited_s: float, failover_s: float | None) -> Verdict:
    """Of a run that was handed over: whether others are asked by now."""
    if status.phase != "pending" or status.started is not None:
        return "settled"
    return "ask" if failover_s is not None and waited_s >= failover_s else "wait"


def judge_leaving(state: FailoverState, status: RunStatus | None) -> Verdict:
    """Of a run that is to leave; None: the place answers that there is no such run.

    One that started before the stop reached it is not begun anew elsewhere, nor is one that ended by itself or that
    its user stopped or removed meanwhile.
    """
    if status is None:
        return "removed" if state.uid else "left"
    if not is_same_run(state, status):
        return "removed"
    if status.started is not None:
        return "settled"
    if status.phase == "stopped" and state.is_stopping:
        return "left"
    return "stop" if status.phase == "pending" else "settled"


def is_same_run(state: FailoverState, status: RunStatus) -> bool:
    """Before its uid is known, the place has answered that it has no run of this name."""
    return state.uid in ("", status.uid)
