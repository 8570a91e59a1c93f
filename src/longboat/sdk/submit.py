"""Submits runs from Python: fields, a mapping, a job file or a Job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from longboat.core.errors import UsageError
from longboat.core.jobs import Job
from longboat.engines.engine import Engine, Submission
from longboat.sdk.arguments import path_of, text_of, wrong
from longboat.sdk.handles import Run, engine_of
from longboat.sdk.problems import plain_errors

JobSource = Job | Mapping[str, object] | str | os.PathLike[str]


@plain_errors
def job(source: JobSource | None = None, /, **fields: object) -> Job:
    """A checked Job from the fields of a job file, a job file, or a job file changed by fields.

    Raises JobError, which names every mistake.
    """
    return load(source, fields)[0]


@plain_errors
def run(
    source: JobSource | None = None,
    /,
    *,
    run_id: str | None = None,
    base: str | os.PathLike[str] | None = None,
    engine: Engine | str | None = None,
    **fields: object,
) -> Run:
    """Submit and return at once; the run goes on without this process.

    `run_id` makes it idempotent: the same id again gives the run that exists. Relative paths of the job are relative
    to `base`: by default the folder of the job file, else the current one. `engine`: one, or its name.
    """
    checked, folder = load(source, fields)
    check_single(checked)
    place = engine_of(engine)
    submission = Submission(
        job=checked,
        base=os.path.abspath(path_of("base", base) if base is not None else folder),
        run_id=None if run_id is None else text_of("run_id", run_id),
        environment=dict(os.environ),
    )
    return Run(place.submit(submission).name, place)


def check_single(job: Job) -> None:
    """Refuse to run a job that stands for many."""
    if job.sweep is not None:
        raise UsageError(
            "the job has a `sweep`: it stands for many runs",
            hint="longboat sweep FILE tries all of them; `--set sweep=null` with `--set params.NAME=VALUE` runs one",
        )


def load(source: JobSource | None, fields: Mapping[str, object]) -> tuple[Job, str]:
    """The Job, and the folder its relative paths are relative to."""
    from longboat.specs.read import read_job

    if isinstance(source, Job):
        if fields:
            raise UsageError("a Job is complete: fields cannot change it", hint="give the fields to job() instead")
        return source, os.getcwd()
    files: list[Path] = []
    if isinstance(source, Mapping):
        fields = {**source, **fields}
    elif isinstance(source, (str, os.PathLike)):
        files = [Path(source)]
    elif source is not None:
        raise wrong("a job", source, "a Job, a mapping, or the path of a job file")
    loaded = read_job(files, fields=fields, environment=dict(os.environ))
    return loaded.job, loaded.base
