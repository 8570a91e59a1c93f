"""The code of a submission as a snapshot in the home's store, and the submitter's files by absolute paths.

What belongs to a snapshot is known to `bundles`; how it travels to the nodes is each engine's own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from longboat.bundles.manifests import CodeSnapshot
from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.core.errors import BundleError, LongboatError, NotFound, UsageError
from longboat.core.jobs import Job
from longboat.core.runs import Explanation, Failure
from longboat.core.words import listing
from longboat.engines.engine import Submission
from longboat.engines.shared.advice import INSTALL
from longboat.engines.shared.home import Home
from longboat.storage.urls import is_object_url

if TYPE_CHECKING:
    from longboat.bundles.source.held_back import HeldBack

STAYS_BEHIND = "stays behind"
"""In a fact of an explanation: a file of the submitter's folder that the run has not."""
_MOST_SCRIPT = 65536
"""Bytes of a shell script that are looked at: it activates its environment at the beginning."""
_MOST_LINES = 60
"""Lines of a failure that are looked at: the end of a traceback names what was missing."""
_MOST_TOLD = 3  # files; a program stops at the first one that it misses


def snapshot_of(home: Home, submission: Submission) -> CodeSnapshot | None:
    """Pack the job's code into the bundle store; None when the job has no code."""
    job = submission.job
    if job.workdir is None or submission.in_place:
        return None
    if submission.code is not None:
        stored = _stored(home, submission.code)
        if submission.outside is None:
            return stored
        # The same tree may have been taken since with other links out of it: those that it was told to have hold.
        return msgspec.structs.replace(stored, outside=dict(submission.outside), root=submission.root)
    root = code_folder(submission)
    return take(root, BundleStore(home.folder("bundles")), include=job.include, exclude=_excluded(job, home.root, root))


def code_folder(submission: Submission) -> Path:
    """The folder that `workdir` names. Raises UsageError where there is none."""
    root = Path(submission.base) / os.path.expanduser(submission.job.workdir or ".")
    if not root.is_dir():
        raise UsageError(f"workdir {root} is not a folder")
    return Path(os.path.abspath(root))


def with_environments(snapshot: CodeSnapshot, job: Job) -> CodeSnapshot:
    """Link the virtual environments that the job's commands name into the working copy: on the same machine they are
    not copied.
    """
    paths = {entry.path for entry in snapshot.entries}
    named = [held for held in _named(snapshot, job, paths) if held.rule == "environment"]
    links = {held.path: os.path.join(snapshot.root, held.path) for held in named}
    return msgspec.structs.replace(snapshot, outside={**snapshot.outside, **links}) if links else snapshot


def code_notices(snapshot: CodeSnapshot, job: Job, *, is_cluster: bool) -> list[str]:
    """Warnings about files that the job needs and the snapshot leaves out, as far as known before the run."""
    paths = {entry.path for entry in snapshot.entries}
    notices = [
        f"{text}; {step}" for text, step in _advice_for(_named(snapshot, job, paths), snapshot, is_cluster=is_cluster)
    ]
    if not is_cluster or not snapshot.outside:
        return notices
    links = listing([f"{path} -> {target}" for path, target in snapshot.outside.items()], 5)
    first = next(iter(snapshot.outside))
    advice = f"a volume takes its place: `volumes: {{{first}: {{claim: NAME}}}}`"
    return [*notices, f"these links lead out of the code's folder and are missing on the cluster: {links}; {advice}"]


def is_about_missing(failure: Failure) -> bool:
    """Whether a failure is about a missing file or module; a setup's message is in its log."""
    from longboat.bundles.source.mentions import in_failure

    return failure.cause == "setup" or bool(in_failure([failure.message, *(failure.rank.tail if failure.rank else ())]))


def missed_by(
    snapshot: CodeSnapshot, job: Job, failure: Failure, *, lines: Sequence[str] = (), is_cluster: bool
) -> list[tuple[str, str]]:
    """Files named in a failure that the snapshot left out: the rule that left each out, and what to write."""
    from longboat.bundles.source.held_back import held_back, travels
    from longboat.bundles.source.mentions import in_command, in_failure

    rank = failure.rank
    said = [
        failure.message,
        *lines,
        *(rank.tail if rank else ()),
        *((rank.traceback or "").splitlines() if rank else ()),
    ]
    scripts = [word for role in job.roles for word in in_command(role.run) if word.endswith(".py")]
    paths = {entry.path for entry in snapshot.entries}
    mentioned = in_failure(said[-_MOST_LINES:], folders=[os.path.dirname(script) for script in scripts])
    held = [
        held_back(snapshot.root, path, exclude=job.exclude)
        for path in mentioned
        if snapshot.root and not travels(path, paths)
    ]
    return _advice_for([each for each in held if each is not None], snapshot, is_cluster=is_cluster)


def still_needed(steps: Sequence[str], missed: Sequence[object]) -> list[str]:
    """A module that stays behind need not be installed."""
    return [step for step in steps if not (missed and step.startswith(INSTALL))]


def with_missed_files(
    explanation: Explanation,
    home: Home,
    run: tuple[str | None, Job, Failure],
    *,
    lines: Sequence[str] = (),
    is_cluster: bool,
) -> Explanation:
    """Add to the explanation of a failure the files that the snapshot left out, if it was made on this machine.

    The record of a run only names the bundle; from which folder it was taken is known to our own store.
    """
    bundle, job, failure = run
    try:
        snapshot = BundleStore(home.folder("bundles")).load(bundle) if bundle is not None else None
    except LongboatError:
        return explanation
    missed = missed_by(snapshot, job, failure, lines=lines, is_cluster=is_cluster) if snapshot is not None else []
    return msgspec.structs.replace(
        explanation,
        facts=(*explanation.facts, *(text for text, _ in missed)),
        next_steps=(*(step for _, step in missed), *still_needed(explanation.next_steps, missed)),
    )


def _named(snapshot: CodeSnapshot, job: Job, paths: Set[str]) -> list[HeldBack]:
    """Files named in the job's commands that the snapshot leaves out."""
    from longboat.bundles.source.mentions import in_command

    commands = [*(role.run for role in job.roles), *([job.setup] if job.setup else [])]
    own = {place.partition("/")[0] for place in _own_places(job)}
    named = [word for command in commands for word in in_command(command)]
    inner = [word for script in named if script in paths for word in in_command(_shell_text(snapshot.root, script))]
    words = [word for word in dict.fromkeys([*named, *inner]) if word.partition("/")[0] not in own]
    there = [word for word in words if snapshot.root and os.path.lexists(os.path.join(snapshot.root, word))]
    if not there:
        return []
    from longboat.bundles.source.held_back import held_back, travels

    held = [held_back(snapshot.root, word, exclude=job.exclude) for word in there if not travels(word, paths)]
    # Of what a script names only environments: its other words are also comments, branches not taken, what it makes.
    return [each for each in held if each is not None and (each.rule == "environment" or _is_named(each.path, named))]


def _is_named(folder: str, named: Sequence[str]) -> bool:
    return any(word == folder or word.startswith(f"{folder}/") for word in named)


def _shell_text(root: str, script: str) -> str:
    """The text of a shell script; empty: it is something else."""
    if not root or not script.endswith((".sh", ".bash")):
        return ""
    try:
        with open(os.path.join(root, script), "rb") as file:
            return file.read(_MOST_SCRIPT).decode(errors="replace")
    except OSError:
        return ""


def _advice_for(held: Sequence[HeldBack], snapshot: CodeSnapshot, *, is_cluster: bool) -> list[tuple[str, str]]:
    if not held:
        return []
    from longboat.bundles.source.held_back import advice

    once = {each.path: each for each in held if each.path not in snapshot.outside}
    return [
        (f"{each.path} {STAYS_BEHIND}: {each.reason}", advice(each, is_cluster=is_cluster))
        for each in list(once.values())[:_MOST_TOLD]
    ]


def _stored(home: Home, code: str) -> CodeSnapshot:
    try:
        return BundleStore(home.folder("bundles")).load(code)
    except (NotFound, BundleError) as error:
        raise NotFound(
            f"the code of that run is not on this machine any more: {error.message}",
            hint="--fresh-code takes what the folder holds now",
        ) from error


def _excluded(job: Job, home: Path, root: Path) -> list[str]:
    """Patterns to leave out: the job's own, and checkpoints, data, volumes and our home inside the workdir."""
    places = _own_places(job)
    if home.is_relative_to(root.resolve()):
        places.append(os.path.normpath(home.relative_to(root.resolve())))
    return [*job.exclude, *(f"/{place}" for place in places if not place.startswith("..") and place != ".")]


def _own_places(job: Job) -> list[str]:
    """Paths in the working copy of checkpoints, data and volumes."""
    places = [checkpoint_folder(job), *(item.to for item in job.data), *(volume.target for volume in job.volumes)]
    return [os.path.normpath(place) for place in places if place and not os.path.isabs(place)]


def checkpoint_folder(job: Job) -> str | None:
    """The local folder in `checkpoints.to`, if it is one."""
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
