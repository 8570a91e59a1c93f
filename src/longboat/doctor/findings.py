"""Findings of the doctor: a check's verdict, ok, warning, broken or skipped, with the reason and what mends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from longboat.core.jobs import Value

if TYPE_CHECKING:
    from longboat.doctor.facts import Seen

CheckStatus = Literal["ok", "warning", "broken", "skipped"]
Layer = Literal[
    "machine", "client", "api", "nodes", "network", "storage", "gpus", "workloads", "pods", "training", "hosts"
]


class Judgement(NamedTuple):
    """A verdict with its reason."""

    status: CheckStatus
    detail: str
    hint: str | None = None


class Finding(Value, frozen=True):
    """One thing the doctor looked at."""

    name: str
    layer: str
    status: str
    detail: str = ""
    hint: str | None = None
    fix: str | None = None
    """What `--fix` does about it."""


class Check(NamedTuple):
    """One check: a pure function of what was seen."""

    name: str
    layer: Layer
    title: str
    """What it says when all is well, or asks; one line of the documentation."""
    judge: Callable[[Seen], Judgement]
    fix: str | None = None
    """What `--fix` does where it is not ok; None: nothing is safe enough."""


def ok(detail: str) -> Judgement:
    return Judgement("ok", detail)


def warning(detail: str, hint: str) -> Judgement:
    """It works, or may work; somebody should look."""
    return Judgement("warning", detail, hint)


def broken(detail: str, hint: str) -> Judgement:
    """Runs will fail or wait because of it."""
    return Judgement("broken", detail, hint)


def skipped(detail: str, hint: str | None = None) -> Judgement:
    """It could not be looked at, which is not ok."""
    return Judgement("skipped", detail, hint)
