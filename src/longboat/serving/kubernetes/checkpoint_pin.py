"""The checkpoint that a version of a service is made with, and stays with. Pure."""

from __future__ import annotations

import re

from longboat.core.runs import RunStatus

_STEP = re.compile(r".*/step-([0-9]{1,18})/?")


def pin(run: RunStatus, step: int | None) -> tuple[str, int | None]:
    """What `checkpoints.resume` of the replicas says, and the step that it is.

    A name of a run alone means its newest checkpoint at the moment of asking, in a storage: the engine writes down the
    folder. In an object store replicas would ask again at every start; so they are given the address of the step.
    """
    if step is not None:
        return f"{run.name}:{step}", step
    newest = run.checkpoint or ""
    match = _STEP.fullmatch(newest)
    if match is None:
        return run.name, None
    in_own_store = "://" in newest and newest.startswith(f"{(run.checkpoint_dir or '').rstrip('/')}/")
    return newest if in_own_store else run.name, int(match[1])
