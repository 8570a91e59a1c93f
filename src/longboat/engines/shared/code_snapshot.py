"""The code of a submission as a snapshot in the home's store, and the submitter's files by absolute paths.

What belongs to a snapshot is known to `bundles`; how it travels to the nodes is each engine's own.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from longboat.bundles.manifests import CodeSnapshot
from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.core.errors import UsageError
from longboat.core.jobs import Job
from longboat.engines.engine import Submission
from longboat.engines.shared.home import Home
from longboat.storage.urls import is_object_url


def snapshot_of(home: Home, submission: Submission) -> CodeSnapshot | None:
    """The code of the job, packed into the store; None when no code travels."""
    job = submission.job
    if job.workdir is None:
        return None
    root = Path(submission.base) / os.path.expanduser(job.workdir)
    if not root.is_dir():
        raise UsageError(f"workdir {root} is not a folder")
    return take(root, BundleStore(home.folder("bundles")), include=job.include, exclude=_excluded(job, home.root, root))


def _excluded(job: Job, home: Path, root: Path) -> list[str]:
    """Checkpoints, data, volumes and our own home are not code, also where they are inside the workdir."""
    places = [checkpoint_folder(job), *(item.to for item in job.data), *(volume.target for volume in job.volumes)]
    if home.is_relative_to(root.resolve()):
        places.append(str(home.relative_to(root.resolve())))
    own = [os.path.normpath(place) for place in places if place and not os.path.isabs(place)]
    return [*job.exclude, *(f"/{place}" for place in own if not place.startswith("..") and place != ".")]


def checkpoint_folder(job: Job) -> str | None:
    """The folder of this machine that the job names for its checkpoints, if it names one."""
    to = job.checkpoints.to
    return None if to is None or is_object_url(to) else to


def with_absolute_secrets(submission: Submission) -> Job:
    secrets = tuple(
        secret
        if secret.file is None
        else msgspec.structs.replace(secret, file=str(Path(submission.base) / os.path.expanduser(secret.file)))
        for secret in submission.job.secrets
    )
    return msgspec.structs.replace(submission.job, secrets=secrets)
