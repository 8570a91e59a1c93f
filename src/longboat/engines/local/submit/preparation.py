"""Preparation of a submission: its volumes become folders of this machine, and what it asks for is checked.

Nothing is made yet but the snapshot of the code: `submission` makes the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from longboat.bundles.manifests import CodeSnapshot
from longboat.core.errors import EngineError, Refused, SecretMissing
from longboat.core.jobs import Job, Value
from longboat.core.layouts import notices as layout_notices
from longboat.core.words import listing
from longboat.engines.engine import Submission
from longboat.engines.local.containers.choice import ContainerChoice, hidden_links
from longboat.engines.local.queue.machine import observe_machine
from longboat.engines.local.settings import LocalSettings
from longboat.engines.local.submit.in_place import check_in_place
from longboat.engines.local.submit.preflight import check
from longboat.engines.local.submit.volumes import LocalFolders, LocalizedJob, localize
from longboat.engines.refusals import Problem
from longboat.engines.shared.code_snapshot import (
    checkpoint_folder,
    code_folder,
    code_notices,
    snapshot_of,
    with_absolute_secrets,
    with_environments,
)
from longboat.engines.shared.home import Home
from longboat.engines.shared.secret_urls import redacted_job
from longboat.engines.shared.secrets import read_secrets, unmasked


def without_spares(job: Job) -> Job:
    """The job as this machine runs it: a launcher that is lost is started again at once, beside the others."""
    return msgspec.structs.replace(job, roles=tuple(msgspec.structs.replace(role, spares=0) for role in job.roles))


def _spare_notices(job: Job) -> list[str]:
    return ["`spares` are for clusters: on this machine a lost node is started again at once"] if job.spares else []


class PreparedSubmission(Value, frozen=True):
    submission: Submission
    notices: list[str]  # what the user should know
    containers: ContainerChoice  # what runs its images


class SubmissionPreparation:
    def __init__(self, home: Home, environment: Mapping[str, str], settings: LocalSettings) -> None:
        self._home, self._environment, self._settings = home, environment, settings
        made = os.fspath(home.root / "claims")
        self._folders = LocalFolders(claims=settings.claims, mounts=settings.mounts, made=made)

    def job_of(self, submission: Submission) -> Job:
        """The job as its record holds it."""
        here = self._localize(submission)
        return redacted_job(with_absolute_secrets(msgspec.structs.replace(submission, job=here.job)))

    def prepare(self, submission: Submission) -> PreparedSubmission:
        """Raises Refused."""
        if not submission.environment:
            submission = msgspec.structs.replace(submission, environment=dict(self._environment))
        if submission.in_place:
            check_in_place(submission.job, base=submission.base, folder=str(code_folder(submission)))
        machine = observe_machine(self._home.root, submission.environment, with_gpus=bool(submission.job.gpus))
        containers = self._choose_containers(submission)
        is_contained = containers.program is not None and all(role.image for role in submission.job.roles)
        here = self._localize(submission, is_contained=is_contained)
        containers = msgspec.structs.replace(containers, mounts=here.mounts)
        spares = _spare_notices(submission.job)
        submission = msgspec.structs.replace(submission, job=here.job)
        problems = [*here.problems, *self._isolation_problems(), *_checkpoint_problems(submission)]
        notices = [
            *here.notices,
            *spares,
            *check(here.job, machine, problems, containers),
            *layout_notices(here.job),
        ]
        return PreparedSubmission(
            submission=submission, notices=[*notices, *self._secret_notices(submission)], containers=containers
        )

    def _localize(self, submission: Submission, *, is_contained: bool = False) -> LocalizedJob:
        job = without_spares(submission.job)
        return localize(job, self._folders, base=submission.base, exists=os.path.exists, is_contained=is_contained)

    def _isolation_problems(self) -> list[Problem]:
        """Tried out only where runs may not start without."""
        if self._settings.gpu_isolation != "required":
            return []
        from longboat.engines.local.queue.gpu_isolation import device_files, find_problem

        problem = find_problem(list(device_files().values()))
        if problem is None:
            return []
        hint = f"{problem.hint}; or `longboat config set local.gpu_isolation auto`"
        return [(f"`local.gpu_isolation` is required: {problem.reason}", hint)]

    def _secret_notices(self, submission: Submission) -> list[str]:
        if not submission.job.secrets:
            return []
        try:
            secrets = with_absolute_secrets(submission).secrets
            return list(unmasked(read_secrets(self._home, secrets, submission.environment)))
        except SecretMissing:
            raise
        except EngineError as error:
            raise Refused(error.message, hint=error.hint) from error

    def _choose_containers(self, submission: Submission) -> ContainerChoice:
        if not any(role.image for role in submission.job.roles):
            return ContainerChoice()
        from longboat.engines.local.containers.program import choose

        return choose(self._settings.containers, submission.environment)


def _checkpoint_problems(submission: Submission) -> list[Problem]:
    """The folder that the job names must be one, or one that can be made."""
    to = checkpoint_folder(submission.job)
    if to is None:
        return []
    folder = Path(os.path.abspath(os.path.join(submission.base, os.path.expanduser(to))))
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        return [(f"`checkpoints.to`: {there} is not a folder", "name a folder; it is made if it is not there")]
    if not os.access(there, os.W_OK | os.X_OK):
        return [(f"`checkpoints.to`: {there} cannot be written to", "name a folder of your own")]
    return []


def take_code(
    home: Home, prepared: PreparedSubmission, notice: Callable[[str], None]
) -> tuple[CodeSnapshot | None, bytes | None]:
    """The code of the job and its uncommitted changes; what the run will miss of it is told."""
    job = prepared.submission.job
    snapshot = snapshot_of(home, prepared.submission)
    if snapshot is None:
        return None, None
    from longboat.bundles.store import BundleStore

    snapshot = with_environments(snapshot, job)
    for warning in (*snapshot.warnings, *code_notices(snapshot, job, is_cluster=False)):
        notice(warning)
    if prepared.containers.program is not None and (hidden := hidden_links(snapshot.outside)):
        links = listing([f"{path} -> {target}" for path, target in hidden.items()], 5)
        notice(f"in its containers these links lead to the image's own files: {links}; a volume brings yours there")
    return snapshot, BundleStore(home.folder("bundles")).diff(snapshot.hash)
