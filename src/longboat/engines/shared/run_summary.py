"""The summary of a run that lists show, from the record and the state that every engine keeps of it. Pure."""

from __future__ import annotations

import shlex
from typing import Protocol

from longboat.core.elastic.sizes import size_words
from longboat.core.errors import RUN_STOPPED_EXIT
from longboat.core.jobs import Job
from longboat.core.runs import Attempt, Phase, RunStatus


class RunRecord(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def job(self) -> Job: ...
    @property
    def created(self) -> float: ...
    @property
    def user(self) -> str: ...


class RunState(Protocol):
    @property
    def phase(self) -> Phase: ...
    @property
    def reason(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def cause(self) -> str | None: ...
    @property
    def started(self) -> float | None: ...
    @property
    def ended(self) -> float | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def attempts(self) -> tuple[Attempt, ...]: ...
    @property
    def size_reason(self) -> str: ...
    @property
    def resizes(self) -> int: ...


def brief(engine: str, record: RunRecord, state: RunState) -> RunStatus:
    """The status of a run as lists show it, from record and state alone."""
    job = record.job
    return RunStatus(
        name=record.name,
        uid=record.uid,
        job=job.name,
        phase=state.phase,
        engine=engine,
        created=record.created,
        nodes=job.nodes,
        gpus=job.gpus,
        size=size_words(job),
        size_reason=state.size_reason,
        resizes=state.resizes,
        exit_code=RUN_STOPPED_EXIT if state.phase == "stopped" and state.exit_code is None else state.exit_code,
        started=state.started,
        ended=state.ended,
        attempt=state.attempt,
        retries=job.retries.count,
        reason=state.reason,
        cause=state.cause,
        user=record.user,
        command=command_text(job),
        labels=job.labels,
        params=job.params,
        priority=job.priority,
        attempts=state.attempts,
    )


def with_digest(image: str, digest: str) -> str:
    """The image as it was, whatever its tag means later: `python:3.12@sha256:...`."""
    return image if digest in image else f"{image}@{digest}"


def command_text(job: Job) -> str:
    """The command as one line; empty for a damaged record without roles."""
    run = job.roles[0].run if job.roles else ""
    return run if isinstance(run, str) else shlex.join(run)
