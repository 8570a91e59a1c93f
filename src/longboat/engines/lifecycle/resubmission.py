"""Resubmission of a run: what is kept here of runs in clusters, and what cannot be the same when one is run again.

The record of a run in a cluster can be written by others of its namespace. A run that is run again takes secrets of its
submitter along: so it is made from what was noted in his own home, and not from what a record says.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from longboat.core.errors import EngineError, NotFound
from longboat.core.jobs import Job, Value
from longboat.core.runs import SWEEP_UID, unowned
from longboat.core.words import listing
from longboat.engines.engine import Submission
from longboat.engines.shared.code_snapshot import with_absolute_secrets
from longboat.engines.shared.files import read_value, write_value
from longboat.engines.shared.home import Home
from longboat.specs.params import is_in_space, with_params

_UID = re.compile(r"[0-9a-f]{8,64}")
KEPT_S = 90 * 86400.0
"""Notes of runs in clusters, and their code, are dropped after this long: nobody tells this home that a run is gone."""


class SubmissionNote(Value, frozen=True):
    """Note of a submission from here to a cluster."""

    run: str
    namespace: str
    job: Job
    base: str
    code: str | None = None


def note_submission(home: Home, uid: str, note: SubmissionNote) -> None:
    """Keep it for `rerun`. A disk that is full takes only this away: the run is there already."""
    with contextlib.suppress(EngineError):
        write_value(home.folder("submissions") / f"{uid}.json", note)
        for path in _paths(home):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > KEPT_S:
                    path.unlink()


def forget_submission(home: Home, uid: str) -> None:
    """Remove what this home keeps of a run of a cluster."""
    from longboat.engines.lifecycle.notices import forget_notice

    with contextlib.suppress(OSError):
        forget_notice(home, uid)
        (home.root / "submissions" / f"{uid}.json").unlink()


def noted_submission(home: Home, uid: str, *, run: str, namespace: str, job: Job | None = None) -> Submission:
    """Raises NotFound where the run was not submitted from here. `job`: as its record has it; of a trial only the
    parameters are taken from there, where its sweep was begun from here."""
    note = read_value(home.root / "submissions" / f"{uid}.json", SubmissionNote)
    if note is None and job is not None and (trial := _noted_trial(home, job, namespace)) is not None:
        return trial
    if note is None or (note.run, note.namespace) != (run, namespace):
        raise NotFound(
            f"{run} was not submitted from here, or long ago: its job and its code are not known on this machine",
            hint="run its job file again where its code is",
        )
    return Submission(job=note.job, base=note.base, code=note.code)


def _noted_trial(home: Home, job: Job, namespace: str) -> Submission | None:
    """A trial that the controller made: the job of its sweep, if its parameters are of that one's space."""
    uid = job.labels.get(SWEEP_UID, "")
    if not _UID.fullmatch(uid):
        return None
    note = read_value(home.root / "submissions" / f"{uid}.json", SubmissionNote)
    if note is None or note.job.sweep is None or note.namespace != namespace:
        return None
    params = {name: job.params[name] for name in note.job.sweep.space if name in job.params}
    if not is_in_space(note.job.sweep, params):
        return None
    return Submission(job=with_params(note.job, params), base=note.base, code=note.code)


def note_of(submission: Submission, *, run: str, namespace: str, code: str | None) -> SubmissionNote:
    job = with_absolute_secrets(submission)
    return SubmissionNote(run=run, namespace=namespace, job=job, base=submission.base, code=code)


def noted_code(home: Home) -> set[str]:
    """Hashes of the code that notes need."""
    notes = [read_value(path, SubmissionNote) for path in _paths(home)]
    return {note.code for note in notes if note is not None and note.code is not None}


def _paths(home: Home) -> Iterator[Path]:
    return (home.root / "submissions").glob("*.json")


def with_recorded(environment: Mapping[str, str], recorded: Mapping[str, str], kept: tuple[str, ...]) -> dict[str, str]:
    """The caller's environment with those variables as they were when the run was submitted: the same Python again."""
    own = {name: value for name, value in environment.items() if name not in kept}
    return {**own, **recorded}


def changed_since(submission: Submission, *, is_cluster: bool, images: Mapping[str, str] | None = None) -> list[str]:
    """Inputs that may have changed since, as far as the job tells. `images`: by role, those that the run had."""
    job = submission.job
    notices = []
    if job.secrets:
        notices.append(f"secrets are read again: {listing([secret.name for secret in job.secrets], 8)}")
    urls = [item.to for item in job.data if item.sha256 is None]
    if urls:
        notices.append(f"data without a sha256 may be other data now: {listing(urls, 8)}")
    if any(not volume.scratch for volume in job.volumes):
        targets = [volume.target for volume in job.volumes if not volume.scratch]
        notices.append(f"volumes hold what they hold now: {listing(targets, 8)}")
    tags = sorted({role.image for role in job.roles if role.image and "@sha256:" not in role.image})
    seen = sorted(set((images or {}).values()))
    if seen and not all("@sha256:" in (role.image or "") for role in job.roles):
        notices.append(f"images named by a tag may be others now; these were: {listing(seen, 4)}")
    elif is_cluster and tags:
        notices.append(f"images named by a tag may be others now: {listing(tags, 4)}")
    if job.setup:
        notices.append("setup runs again: what it installs may be newer")
    kinds = [role.name for role in job.roles if role.resources.gpus.count and role.resources.gpus.type is None]
    if is_cluster and kinds:
        notices.append(f"no type of GPU is named, so it may get others: {listing(kinds, 4)}")
    if submission.in_place:
        notices.append("it runs in place: with the files that its folder holds now")
    folder = submission.environment.get("VIRTUAL_ENV")
    if not is_cluster and folder and not os.path.isdir(folder):
        notices.append(f"the Python environment {folder} is gone")
    return notices


def again(
    submission: Submission, *, resume: str | None, fresh_code: bool, after: tuple[str, ...] | None = None
) -> Submission:
    """The submission of the next run: from a checkpoint of that one, with the code as the folder has it now, after
    other runs than that one. It is no replica and no trial, also where that one is: nobody but its user ends it."""
    job = msgspec.structs.replace(submission.job, labels=unowned(submission.job.labels))
    if after is not None:
        job = msgspec.structs.replace(job, after=after)
    if resume is not None:
        checkpoints = msgspec.structs.replace(job.checkpoints, resume=resume)
        job = msgspec.structs.replace(job, checkpoints=checkpoints)
    submission = msgspec.structs.replace(submission, job=job)
    return with_fresh_code(submission) if fresh_code else submission


def with_fresh_code(submission: Submission) -> Submission:
    """With the code as its folder has it when it is submitted."""
    return msgspec.structs.replace(submission, code=None, outside=None, root="")
