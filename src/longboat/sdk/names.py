"""Names of runs as users give them: an exact name, the beginning of one, or `-` for the latest."""

from __future__ import annotations

import contextlib

from longboat.core.errors import NotFound, UsageError
from longboat.core.runs import RunStatus
from longboat.core.words import listing, nearest
from longboat.engines.engine import Engine

LATEST = "-"


def find_run(engine: Engine, text: str, *, is_whole: bool = False) -> RunStatus:
    """The run in full. Raises NotFound with the nearest names, or UsageError when several runs begin like this.

    `is_whole`: a beginning is not enough."""
    if text != LATEST:
        try:
            return engine.status(text)
        except NotFound:
            pass
    names = [run.name for run in engine.list() if text != LATEST or not run.is_replica]
    return engine.status(match(text, names, is_whole=is_whole))


def find_training(engine: Engine, text: str) -> RunStatus:
    """The run that is served, drilled or run once more: never a replica of a service, whose name begins with that of
    its run, which may be gone. Raises NotFound, UsageError."""
    if text != LATEST:
        with contextlib.suppress(NotFound):
            status = engine.status(text)
            if status.is_replica:
                raise UsageError(f"{text} is a replica of a service", hint="longboat serve ls shows its run")
            return status
    return engine.status(match(text, [run.name for run in engine.list() if not run.is_replica]))


def match(text: str, names: list[str], *, is_whole: bool = False) -> str:
    """The name that is meant; `names` are newest first. What stops or removes a run asks for the whole name: after the
    run that was meant is gone, its name is often the beginning of another."""
    if text == LATEST:
        if not names:
            raise NotFound("there are no runs yet", hint="start one: longboat run train.py")
        return names[0]
    if text in names:
        return text
    candidates = [name for name in names if text and name.startswith(text)]
    if is_whole and candidates:
        raise NotFound(f"no run named {text!r}", hint=f"write the whole name: {listing(candidates, 8)}")
    if len(candidates) > 1:
        raise UsageError(
            f"{text!r} is the beginning of {len(candidates)} runs", hint=f"one of {listing(candidates, 8)}"
        )
    if not candidates:
        raise NotFound(f"no run named {text!r}", hint=nearest_hint(text, names))
    return candidates[0]


def nearest_hint(text: str, names: list[str]) -> str:
    near = nearest(text, names, 3)
    return f"did you mean {listing(near, 3)}?" if near else "longboat ps -a lists all runs"
