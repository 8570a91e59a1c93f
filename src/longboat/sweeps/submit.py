"""Submission of a sweep: checked as its first trial is, its code taken once, its record written. Nothing runs yet."""

from __future__ import annotations

import os
import re
import time

import msgspec

from longboat.core.errors import LongboatError, UsageError
from longboat.core.jobs import Value
from longboat.core.plans import Plan
from longboat.core.words import counted, listing
from longboat.engines.engine import Engine, Submission
from longboat.engines.lifecycle.resubmission import SubmissionNote, forget_submission, note_submission
from longboat.engines.refusals import changed_fields, differing
from longboat.engines.shared.code_snapshot import snapshot_of, with_absolute_secrets
from longboat.engines.shared.home import STEM_LIMIT, Home, current_user, numbered_names
from longboat.engines.shared.secret_urls import redacted_job
from longboat.sweeps.drive import first_trial, submission_of
from longboat.sweeps.record import SweepFolder, SweepRecord, check_sweep_name, kept_variables


class Place(Value, frozen=True):
    """Where the trials run."""

    context: str | None = None
    namespace: str | None = None


def place_of(engine: Engine) -> Place:
    """The cluster by name, so that a sweep stays where it began when the default changes."""
    if engine.name != "kubernetes":
        return Place()
    from longboat.engines.kubernetes.engine import KubernetesEngine

    assert isinstance(engine, KubernetesEngine)
    return Place(context=engine.client.context, namespace=engine.client.namespace)


def existing(home: Home, engine: Engine, name: str, submission: Submission) -> SweepRecord | None:
    """The sweep that has this name already, if it is the same one. Raises UsageError where it is another."""
    check_sweep_name(name)
    folder = SweepFolder(home, name)
    job = with_absolute_secrets(submission)
    if folder.exists():
        record = folder.record()
    elif engine.name == "kubernetes":  # begun from another machine, or by a command that died
        from longboat.sweeps.kubernetes.creation import found_in_cluster

        there = found_in_cluster(engine, name)
        if there is None:
            return None
        record, job = there, redacted_job(job)
    else:
        return None
    changed = changed_fields(record.job, job)
    if changed:
        raise UsageError(
            f"the sweep {name} exists already, of another job: {differing(changed)}",
            hint=f"-n NAME names another one, or longboat sweep rm {name}",
        )
    if not folder.exists():
        if record.user != current_user():
            raise UsageError(f"there is a sweep {name} of {record.user} there", hint="-n NAME names another one")
        home.prepare()
        folder.create(record)  # from now on this home knows of it
    return record


def plan_sweep(engine: Engine, record: SweepRecord) -> Plan:
    """The plan of the first trial; the others differ in parameters. Raises Refused."""
    return engine.plan(submission_of(record, first_trial(record), os.environ))


def record_of(home: Home, engine: Engine, submission: Submission, name: str | None, place: Place) -> SweepRecord:
    """The record of a new sweep, without its code. Nothing is written. `name`: None for the first that is free."""
    if submission.job.sweep is not None and submission.job.sweep.method == "optuna":
        from longboat.sweeps.optuna_points import check_installed

        check_installed(submission.job.sweep)
    name = name or _free_name(home, engine, submission.job.name)
    return SweepRecord(
        name=name,
        uid=os.urandom(6).hex(),
        job=with_absolute_secrets(submission),
        base=submission.base,
        created=time.time(),
        user=current_user(),
        engine=engine.name,
        context=place.context,
        namespace=place.namespace,
        in_place=submission.in_place,
        environment=kept_variables(submission.environment),
    )


def create_sweep(home: Home, engine: Engine, record: SweepRecord) -> SweepRecord:
    """Take the code and write the record. From now on whoever looks at the sweep drives it."""
    taken = _trial_runs(engine, record.name)
    if taken:
        raise UsageError(
            f"runs of an earlier sweep {record.name} are there: {listing(taken, 4)}",
            hint=f"-n NAME names another sweep; longboat rm {' '.join(taken[:8])} removes {counted(len(taken), 'run')}",
        )
    home.prepare()
    snapshot = snapshot_of(home, submission_of(record, first_trial(record), os.environ))
    if snapshot is not None:
        record = msgspec.structs.replace(record, code=snapshot.hash, outside=dict(snapshot.outside), root=snapshot.root)
    if snapshot is not None or engine.name == "kubernetes":
        place = record.namespace or ""
        note = SubmissionNote(run=record.name, namespace=place, job=record.job, base=record.base, code=record.code)
        note_submission(home, record.uid, note)  # what is noted is not collected while no run needs it yet
    try:
        if engine.name == "kubernetes":
            from longboat.sweeps.kubernetes.creation import NewSweep

            NewSweep(engine, record, submission_of(record, first_trial(record), os.environ)).create()
        if not SweepFolder(home, record.name).create(record):
            raise UsageError(
                f"the sweep {record.name} was created meanwhile", hint=f"longboat sweep status {record.name}"
            )
    except LongboatError:
        forget_submission(home, record.uid)
        raise
    return record


def _free_name(home: Home, engine: Engine, job: str) -> str:
    runs = {run.name for run in engine.list()}
    return next(
        name
        for name in numbered_names(job[:STEM_LIMIT].rstrip("-"))
        if len(name) <= STEM_LIMIT and not SweepFolder(home, name).exists() and not _of_sweep(name, runs)
    )


def _trial_runs(engine: Engine, name: str) -> list[str]:
    return _of_sweep(name, {run.name for run in engine.list()})


def _of_sweep(name: str, runs: set[str]) -> list[str]:
    return sorted(run for run in runs if re.fullmatch(rf"{re.escape(name)}-t[0-9]+", run))
