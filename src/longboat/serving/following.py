"""Following a run's checkpoints: which one a service serves next. Pure, but for the look at them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from longboat.core.errors import NotFound, UsageError
from longboat.core.jobs import Job, Keep, Serve
from longboat.serving.requests import ServiceRequest
from longboat.storage.retention import Candidate, Retention, best_step

if TYPE_CHECKING:
    from longboat.engines.engine import Engine
    from longboat.storage.inventory.entries import CheckpointEntry

FOLLOW_S = 5.0
"""Between two looks: checkpoints are minutes apart, and a look at an object store is a request."""


def next_step(
    entries: Sequence[CheckpointEntry], follow: str, rule: Retention, *, serving: int | None, failed: Collection[int]
) -> int | None:
    """The step that is to be served instead; None: what serves stays. One that has failed is never tried again."""
    complete = [entry for entry in entries if entry.complete]
    if follow == "best":
        step = best_step([Candidate(entry.step, entry.time or 0.0, entry.metrics) for entry in complete], rule)
    else:
        step = max((each.step for each in complete if follow == "newest" or each.promoted), default=None)
    if step is None or step in failed or step == serving:
        return None
    return None if follow == "newest" and serving is not None and step < serving else step


def find_next(engine: Engine, run: str, job: Job, serve: Serve, **known: object) -> int | None:
    """Look at the checkpoints of a run, `next_step`. Raises LongboatError."""
    with engine.checkpoints(run) as place:
        return next_step(place.entries(), serve.follow or "", rule_of(job), **known)  # type: ignore[arg-type]


def first_step(engine: Engine, request: ServiceRequest, serve: Serve, job: Job) -> int | None:
    """The step that a new version serves: as named, else what it follows; None: the newest. Raises LongboatError.

    A run whose checkpoints have no metric yet has no best one, and its newest is served meanwhile. Promoting is what
    somebody does who wants nothing else served, so there the newest is none. A canary tries the newest.
    """
    is_said = request.step is not None or request.weight is not None
    if is_said or serve.follow not in ("best", "promoted"):
        return request.step
    step = find_next(engine, request.run, job, serve, serving=None, failed=())
    if step is None and serve.follow == "promoted":
        raise NotFound(
            f"no checkpoint of {request.run} is promoted",
            hint=f"longboat checkpoint promote {request.run}:STEP; or follow the newest: --follow",
        )
    return step


def rule_of(job: Job) -> Retention:
    keep = job.checkpoints.keep
    return Retention(metric=keep.metric or "", goal=keep.goal) if isinstance(keep, Keep) else Retention()


def _fixed_by(request: ServiceRequest) -> str:
    """What was chosen that a follower would undo; '': nothing. It takes the code of the run that it follows."""
    if not request.with_checkpoint:
        return "it has none"
    if request.step is not None:
        return f"step {request.step} was named"
    return "its code is that of its folder now" if request.fresh_code else ""


def checked_follow(request: ServiceRequest, serve: Serve, job: Job, notice: Callable[[str], None]) -> Serve:
    """The settings of a version: one whose step or code somebody chose is not replaced by itself. Raises UsageError."""
    if serve.follow is None or request.is_followed:
        return serve
    if reason := _fixed_by(request):
        notice(f"{request.service_name} does not follow the checkpoints of {request.run}: {reason}")
        return msgspec.structs.replace(serve, follow=None)
    if serve.follow == "best" and not rule_of(job).metric:
        raise UsageError(
            f"the job of {request.run} does not say what its best checkpoint is",
            hint="checkpoints: {keep: {last: 3, best: 1, metric: accuracy}} in the job file; or follow the newest",
        )
    return serve
