"""One run in full, and what can be done to it: what `status`, `explain`, `stop`, `rerun` and `rm` do, for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longboat.core.errors import LongboatError, Refused, UsageError
from longboat.core.runs import RunStatus
from longboat.engines.lifecycle.resubmission import again
from longboat.sdk.records import checkpoint_record, plain
from longboat.sdk.rerun import notices_of
from longboat.web.places import ShownPlace
from longboat.web.rows import row_of

ACTIONS = ("stop", "retry", "resume", "remove")
SUBMITTING = ("retry", "resume")


def run_page(place: ShownPlace, run: str, *, allowed: Sequence[str] = ACTIONS) -> dict[str, Any]:
    """Everything that a page of one run shows besides its log and curves."""
    status = place.engine.status(run)
    return {
        "cluster": place.name,
        "id": status.name,
        "row": row_of(status, place.name),
        "status": plain(status),
        "explain": explanation(place, run),
        "job_yaml": job_yaml(status),
        "commands": commands(place, status),
        "may": {action: action in allowed and why_not(status, action) is None for action in ACTIONS},
    }


def explanation(place: ShownPlace, run: str) -> dict[str, Any] | None:
    """None where nothing can be said: the rest of the page is worth showing without it."""
    try:
        explained: dict[str, Any] = plain(place.engine.explain(run))
    except LongboatError:
        return None
    return explained


def job_yaml(status: RunStatus) -> str | None:
    if status.spec is None:
        return None
    from longboat.specs.dump import job_to_mapping, to_yaml

    return to_yaml(job_to_mapping(status.spec))


def commands(place: ShownPlace, status: RunStatus) -> dict[str, str]:
    """What the page shows and does, as commands."""
    verbs = {"reproduce": "rerun", "status": "status", "logs": "logs", "explain": "explain", "stop": "stop"}
    return {name: place.command(verb, status.name) for name, verb in {**verbs, "remove": "rm"}.items()}


def checkpoints(place: ShownPlace, run: str) -> dict[str, Any]:
    """`checkpoint ls -o json`, and where they are."""
    with place.engine.checkpoints(run) as kept:
        entries = kept.entries()
        where = kept.where
    return {"where": where, "checkpoints": [checkpoint_record(entry) for entry in entries]}


def why_not(status: RunStatus, action: str) -> str | None:
    """Why the phase of a run rules an action out; None: it does not. Pure."""
    if action == "stop" and status.is_final:
        return f"{status.name} has ended already"
    if action == "remove" and not status.is_final:
        return f"{status.name} has not ended"
    if action == "resume" and status.checkpoint is None:
        return f"{status.name} has no complete checkpoint"
    if action in ("retry", "resume") and not status.is_final:
        return f"{status.name} has not ended"
    return None


def act(place: ShownPlace, run: str, action: str, options: dict[str, Any]) -> dict[str, Any]:
    """Do it. Raises Refused where the phase rules it out."""
    if action == "stop":
        place.engine.stop(run, grace_s=grace_of(options))
        return {"run": row_of(place.engine.status(run), place.name)}
    status = place.engine.status(run)
    if action == "remove":
        if options.get("force") is not True:
            check(status, action)
        place.engine.delete(run, purge=options.get("purge") is True)
        return {"removed": run}
    check(status, action)
    submission = again(place.engine.resubmission(run), resume=run if action == "resume" else None, fresh_code=False)
    notices = notices_of(place.engine, run, submission)
    made = place.engine.submit(msgspec.structs.replace(submission, run_id=None))
    return {"cluster": place.name, "id": made.name, "notices": list(notices)}


def check(status: RunStatus, action: str) -> None:
    reason = why_not(status, action)
    if reason is not None:
        hint = {"remove": f"stop it first: longboat stop {status.name}", "stop": None}.get(action)
        raise Refused(reason, hint=hint)


def grace_of(options: dict[str, Any]) -> float | None:
    grace = options.get("grace_s")
    if grace is None:
        return None
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace <= 86400:
        raise UsageError(f"grace_s: {grace!r} is not a number of seconds", hint="0 to 86400")
    return float(grace)
