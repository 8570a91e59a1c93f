"""Loads what `run` and `check` were given: words and flags to a job, and to a Submission."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from longboat.cli.input.flags import fields_of
from longboat.cli.input.targets import resolve
from longboat.core.commands import with_arguments
from longboat.core.errors import NotFound, UsageError
from longboat.core.jobs import Job
from longboat.engines.engine import Engine, Submission
from longboat.sdk.names import LATEST, find_run
from longboat.specs.read import LoadedJob, read_job


def load(words: tuple[str, ...], command: tuple[str, ...], options: dict[str, Any], place: Engine) -> LoadedJob:
    """Build and validate the job from arguments and flags."""
    if options["in_place"] and options["include"]:
        raise UsageError(
            "--include with --in-place", hint="leave --include out: in place, a run sees every file of its folder"
        )
    cwd = Path.cwd()
    home, workdir = Path(os.path.expanduser("~")), options["workdir"]
    target = resolve(words, command, cwd=cwd, home=home, workdir=workdir)
    fields = {**target.fields, **fields_of(named_runs(options, place), environment=os.environ, cwd=cwd)}
    read = partial(read_job, target.files, overrides=options["set"], environment=dict(os.environ), cwd=cwd)
    if target.files:
        fields = appended(fields, read)
    loaded = read(fields=fields)
    if target.arguments:
        loaded = msgspec.structs.replace(loaded, job=with_job_arguments(loaded.job, target.arguments))
    notices = () if workdir and command else target.notices  # else it says that no code is copied
    return msgspec.structs.replace(loaded, notices=(*notices, *loaded.notices))


class JobReader(Protocol):
    def __call__(self, *, fields: Mapping[str, object]) -> LoadedJob: ...


def with_job_arguments(job: Job, arguments: Sequence[str]) -> Job:
    """Append the arguments after `--` to the job's command, last: no variable in them is expanded."""
    if len(job.roles) > 1:
        names = ", ".join(role.name for role in job.roles)
        raise UsageError(
            f"arguments after --, and the job has several roles: {names}",
            hint=f"change the command of one: --set 'roles.{job.roles[0].name}.run=...'",
        )
    run = with_arguments(job.roles[0].run, arguments)
    if run is None:
        raise UsageError(
            "arguments after --, and the job's command is more than one command",
            hint='write "$@" in `run` where they belong',
        )
    return msgspec.structs.replace(job, roles=(msgspec.structs.replace(job.roles[0], run=run),))


def appended(fields: dict[str, Any], read: JobReader) -> dict[str, Any]:
    """Append list flags to the lists of the job files; as plain fields they would replace them."""
    added: dict[str, Any] = {
        name: fields[name] for name in ("secrets", "artifacts", "include", "after") if name in fields
    }
    if not added:
        return fields
    from longboat.specs.dump import job_to_mapping

    given = job_to_mapping(read(fields={name: value for name, value in fields.items() if name not in added}).job)
    if "secrets" in added:
        secrets = given.get("secrets", {})
        known = secrets if isinstance(secrets, dict) else dict.fromkeys(secrets, {})
        added["secrets"] = {**known, **dict.fromkeys(fields["secrets"], {})}
    for name in ("artifacts", "include", "after"):
        if name in added:
            added[name] = [*given.get(name, []), *fields[name]]
    return {**fields, **added}


def named_runs(options: dict[str, Any], place: Engine) -> dict[str, Any]:
    """Resolve shortened run names in flags."""
    after = tuple(find_run(place, run).name for run in options.get("after", ()))
    return {**resumed(options, place), "after": after}


def resumed(options: dict[str, Any], place: Engine) -> dict[str, Any]:
    """Resolve `--resume` to a run's full name, also before a step (RUN:200), or to the absolute path of a folder."""
    wanted = options.get("resume")
    if wanted and "://" in wanted:
        return options
    if not wanted or "/" in wanted:
        return options if not wanted else {**options, "resume": os.path.abspath(wanted)}
    wanted, colon, step = wanted.partition(":")
    try:
        name = place.status(wanted).name if wanted != LATEST else find_run(place, wanted).name
    except NotFound:  # before what begins like it: the checkpoints of a removed run go by its name
        name = wanted if place.kept_checkpoints(wanted) is not None else find_run(place, wanted).name
    return {**options, "resume": f"{name}{colon}{step}"}


def submission_of(loaded: LoadedJob, run_id: str | None, *, in_place: bool = False) -> Submission:
    return Submission(job=loaded.job, base=loaded.base, run_id=run_id, environment=dict(os.environ), in_place=in_place)
