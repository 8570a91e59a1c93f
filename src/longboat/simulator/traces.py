"""Traces of jobs: read from CSV, written as CSV. Values and text only; generated ones come from `generators`.

A trace has the columns `timestamp`, `duration` (seconds) and `num_gpus`; others are ignored. A timestamp is a number of
seconds or a date and time. Lines may be in any order. Jobs without GPUs are left out and counted: they need none of the
machines that are looked at here.
"""

from __future__ import annotations

import csv
import math
import os
import stat
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from longboat.core.errors import EngineError, JobError, NotFound, Problem, UsageError
from longboat.core.jobs import Value
from longboat.core.times import parse_iso_time

COLUMNS = ("timestamp", "duration", "num_gpus")
MOST_PROBLEMS = 20  # more tell nobody more
MOST_GPUS = 1_000_000  # beyond any job


class TraceJob(Value, frozen=True):
    """A training: submitted once, it runs for `duration` on all its GPUs at once."""

    name: str
    submitted: float  # seconds, of any epoch
    duration: float
    gpus: int


class Trace(Value, frozen=True):
    name: str
    jobs: tuple[TraceJob, ...]  # in the order of submission
    without_gpus: int = 0  # jobs left out

    @property
    def gpu_seconds(self) -> float:
        return sum(job.gpus * job.duration for job in self.jobs)


def trace_of(name: str, jobs: Iterable[TraceJob], *, without_gpus: int = 0) -> Trace:
    """Sorted by submission; jobs of the same moment stay in their order."""
    return Trace(name=name, jobs=tuple(sorted(jobs, key=lambda job: job.submitted)), without_gpus=without_gpus)


def read_trace(path: str | Path) -> Trace:
    """Raises NotFound, UsageError, or JobError with the numbers of the wrong lines."""
    hint = "a trace is a CSV file with the columns timestamp, duration, num_gpus"
    try:
        # A named pipe without a writer must not hang the command.
        with open(path, encoding="utf-8-sig", newline="", opener=_opener) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path}: this is not a regular file", hint=hint)
            return _read(str(path), file)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file", hint=f"{hint}, or generate:philly") from None
    except (OSError, ValueError) as bad:
        raise UsageError(f"{path}: cannot be read: {getattr(bad, 'strerror', None) or 'no text'}", hint=hint) from None
    except csv.Error as bad:
        raise UsageError(f"{path}: no CSV: {bad}", hint=hint) from None


def _opener(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)


def _read(path: str, file: IO[str]) -> Trace:
    rows = csv.reader(file)
    head = [name.strip() for name in next(rows, [])]
    missing = [name for name in COLUMNS if name not in head]
    if missing:
        raise JobError(
            [Problem(f"the column {name} is missing", file=path, line=1, column=1) for name in missing],
            hint=f"the first line names the columns; it needs {', '.join(COLUMNS)}",
        )
    where = [head.index(name) for name in COLUMNS]
    jobs: list[TraceJob] = []
    problems: list[Problem] = []
    without = 0
    for row in rows:
        if not row:
            continue
        job = _job(row, where, f"{Path(path).stem}-{rows.line_num}")
        if isinstance(job, str):
            problems.append(Problem(job, file=path, line=rows.line_num, column=1))
            if len(problems) >= MOST_PROBLEMS:
                break
        elif job is None:
            without += 1
        else:
            jobs.append(job)
    if problems:
        raise JobError(problems)
    if not jobs:
        raise UsageError(f"{path}: there is no job with GPUs in it", hint="each line is one job")
    return trace_of(Path(path).name, jobs, without_gpus=without)


def _job(row: list[str], where: list[int], name: str) -> TraceJob | str | None:
    """A job, what is wrong with the line, or None for a job without GPUs."""
    if len(row) <= max(where):
        return f"{len(row)} columns, expected at least {max(where) + 1}"
    timestamp, duration, gpus = (row[index].strip() for index in where)
    submitted = moment_of(timestamp)
    if submitted is None:
        return f"timestamp: not a time: {timestamp!r}"
    lasts = _number(duration)
    if lasts is None or lasts <= 0:
        return f"duration: not a number of seconds above 0: {duration!r}"
    if not gpus.isascii() or not gpus.isdigit() or int(gpus[:9]) > MOST_GPUS:
        return f"num_gpus: not a whole number up to {MOST_GPUS}: {gpus!r}"
    return TraceJob(name=name, submitted=submitted, duration=lasts, gpus=int(gpus)) if int(gpus) else None


def moment_of(text: str) -> float | None:
    """Seconds of a number, or of a date and time (UTC unless it says otherwise)."""
    number = _number(text)
    if number is not None:
        return number
    return parse_iso_time(text)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def write_trace(trace: Trace, path: str | Path) -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow((*COLUMNS, "gpu_time"))
            for job in trace.jobs:
                lines.writerow((_text_of(job.submitted), job.duration, job.gpus, job.gpus * job.duration))
    except OSError as bad:
        raise EngineError(f"{path}: cannot be written: {bad.strerror}") from None


def _text_of(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).replace(tzinfo=None).isoformat(sep=" ")
