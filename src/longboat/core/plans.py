"""The Plan: actions with their reasons, as a printable value. `--dry-run` stops here."""

from __future__ import annotations

from longboat.core.jobs import Job, Value
from longboat.core.layouts import Layout


class Action(Value, frozen=True):
    kind: str  # a verb: "pack", "make", "start", "wait", ...
    what: str
    reason: str = ""


class Plan(Value, frozen=True):
    job: Job
    layout: Layout | None = None
    actions: tuple[Action, ...] = ()
    notices: tuple[str, ...] = ()  # what the user should know but that stops nothing
