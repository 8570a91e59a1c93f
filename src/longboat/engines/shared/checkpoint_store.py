"""Checkpoints in an object store, as whoever submits or removes a run reaches them.

A record of a run can be written by others: it names a bucket, and decides neither where credentials go nor which file
of this machine is read. Both are decided by the caller's own environment, files and secrets (`callers_variables`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from longboat.core.errors import EngineError, LongboatError
from longboat.core.jobs import Job
from longboat.core.resources import format_duration
from longboat.storage.urls import check_no_address, is_object_url, object_url

if TYPE_CHECKING:
    from longboat.engines.shared.home import Home

STORES = ("AWS_", "AZURE_", "GOOGLE_", "GS_", "GCE_METADATA_HOST", "STORAGE_EMULATOR_HOST")
"""Beginnings of the variables that tell how to reach object stores."""
PLACES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "az": (
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_SERVICE_ENDPOINT",
        "AZURE_STORAGE_ACCOUNT",
        "AZURE_STORAGE_ACCOUNT_NAME",
    ),
}
"""Those that tell which server a bucket is on: the same name means another bucket elsewhere."""

COMPLETE = "a complete one is a folder step-N with a file .complete in it"
"""Hint where there is none to resume from."""


def resume_address(wanted: str) -> str | None:
    """The URL in `checkpoints.resume`; None for a run's name or a folder. Raises UsageError for an invalid URL."""
    if not is_object_url(wanted):
        check_no_address(wanted)
        return None
    object_url(wanted)
    return wanted.rstrip("/")


def kept_reason(job: Job) -> str:
    """How many checkpoints the object store keeps, as the reason of a plan's action."""
    keep = job.checkpoints.keep
    if isinstance(keep, int):
        return f"the newest {keep} that are complete" if keep else "all that are complete"
    best = [f"{keep.best} with the best {keep.metric}"] if keep.best else []
    every = [f"one each {format_duration(keep.every_s)}"] if keep.every_s else []
    words = [f"the newest {keep.last}", *best, *every] if keep.last else ["all"]
    return f"{', '.join(words)} that are complete"


def own_variables(job: Job) -> dict[str, str]:
    """Variables that the job itself sets; where roles differ, the first role's."""
    return {name: value for role in reversed(job.roles) for name, value in role.env.items()}


def submitters_variables(home: Home, job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """The submitter's environment with the variables and readable secrets of his own job.

    Not for a job from a record that others can write: its variables name files and endpoints.
    """
    from longboat.engines.shared.secrets import readable_secrets

    return {**environment, **own_variables(job), **readable_secrets(home, job.secrets, environment)}


def callers_variables(home: Home, environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, and secrets of his own store that are named like object-store variables."""
    from longboat.core.jobs import Secret
    from longboat.engines.shared.secrets import list_secrets, read_secrets

    kept = [Secret(name=name, store=name) for name in list_secrets(home) if name.startswith(STORES)]
    return {**read_secrets(home, kept, environment), **environment}


def purge(url: str, environment: Mapping[str, str], own: Sequence[str] = ()) -> None:
    """Remove a run's checkpoints. Raises EngineError with what remains, why, and which variables the run had."""
    from longboat.storage.checkpoint_mirror import Mirror

    try:
        Mirror(url, environment).remove_all()
    except LongboatError as error:
        why = f"{error.message}; {error.hint}" if error.hint else error.message
        had = f" (the run had {', '.join(own)} of its own)" if own else ""
        raise EngineError(
            f"the checkpoints in {url} cannot be removed: {why}",
            hint=f"set the credentials in this shell{had} and try again; without --purge the run goes and they stay",
        ) from None


def purge_for(job: Job, url: str, environment: Mapping[str, str]) -> None:
    """Remove checkpoints of a run that others may have submitted, with the caller's own credentials only."""
    own = variables_to_set(job)
    missing = places_to_set(job, url, environment)
    if missing:
        raise EngineError(
            f"the checkpoints in {url} cannot be removed: the run told by {', '.join(missing)} which server this is,"
            " and a record does not decide where credentials go",
            hint=f"set {' and '.join(own)} in this shell if you trust them; without --purge the run goes and they stay",
        )
    purge(url, environment, own)


def variables_to_set(job: Job) -> list[str]:
    """Names of the object-store variables that the run itself set, by `env` or `secrets`."""
    names = {*own_variables(job), *(secret.name for secret in job.secrets)}
    return sorted(name for name in names if name.startswith(STORES) and name.isidentifier())


def places_to_set(job: Job, url: str, environment: Mapping[str, str]) -> list[str]:
    """The variables among them that chose the server of the bucket, unless the caller's environment chooses one."""
    names = PLACES.get(url.partition("://")[0], ())
    wanted = [name for name in variables_to_set(job) if name in names]
    is_told = any(environment.get(name) for name in names)
    return [] if is_told or _has_profile(url, environment) else wanted


def _has_profile(url: str, environment: Mapping[str, str]) -> bool:
    from longboat.storage.credentials.aws import profile

    return url.startswith("s3://") and bool(profile(environment).get("endpoint_url"))
