"""Checkpoints in an object store, as whoever submits or removes a run reaches them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from longboat.core.errors import EngineError, LongboatError
from longboat.core.jobs import Job

if TYPE_CHECKING:
    from longboat.engines.local.home import Home


def kept_reason(job: Job) -> str:
    """Of the action of a plan that keeps checkpoints in a store."""
    keep = job.checkpoints.keep
    return f"the newest {keep} that are complete" if keep else "all that are complete"


def own_variables(job: Job) -> dict[str, str]:
    """What the job sets itself; of roles that do not agree, the first."""
    return {name: value for role in reversed(job.roles) for name, value in role.env.items()}


def submitters_variables(home: Home, job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the job as far as it can be had here: a secret that is nowhere is left out."""
    from longboat.engines.local.secrets import read_secrets

    found = {**environment, **own_variables(job)}
    for secret in job.secrets:
        try:
            found.update(read_secrets(home, [secret], environment))
        except EngineError:
            continue
    return found


def purge(url: str, environment: Mapping[str, str]) -> None:
    """Remove a run's checkpoints. Raises EngineError that says what stays, and why."""
    from longboat.storage.mirrors import Mirror

    try:
        Mirror(url, environment).remove_all()
    except LongboatError as error:
        why = f"{error.message}; {error.hint}" if error.hint else error.message
        raise EngineError(
            f"the checkpoints in {url} cannot be removed: {why}",
            hint="set the credentials in this shell and try again; without --purge the run goes and they stay",
        ) from None
