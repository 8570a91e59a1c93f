"""Signed URLs of a job: secrets, though they stand where others write plain addresses.

Whoever has the query of a signed URL, or the user and password in one, can fetch what it protects. So it is shown
without them, and what many may read (a record in a cluster, a pod's spec) never holds them: there the whole URL is a
variable that comes out of a Secret, under a name of ours. Pure.
"""

from __future__ import annotations

import msgspec

from longboat.core.jobs import Job
from longboat.storage.urls import is_secret, redacted

VARIABLE = "LONGBOAT_DATA_URL_"
"""Beginning of the names; the place in `data` follows. No rank inherits variables that begin with LONGBOAT_."""


def variable_of(place: int) -> str:
    return f"{VARIABLE}{place}"


def secret_urls(job: Job) -> dict[str, str]:
    """URLs with credentials, by the variable that replaces each."""
    return {variable_of(place): item.url for place, item in enumerate(job.data) if is_secret(item.url)}


def redacted_job(job: Job) -> Job:
    """The job with credentials removed from its URLs."""
    data = tuple(msgspec.structs.replace(item, url=redacted(item.url)) for item in job.data)
    places = {name: _redacted(getattr(job.checkpoints, name)) for name in ("to", "resume")}
    return msgspec.structs.replace(job, data=data, checkpoints=msgspec.structs.replace(job.checkpoints, **places))


def _redacted(place: str | None) -> str | None:
    return redacted(place) if place is not None and "://" in place else place
