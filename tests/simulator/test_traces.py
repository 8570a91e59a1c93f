"""Traces as text, and those made from a seed."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

from longboat.core.errors import JobError, LongboatError, NotFound, UsageError
from longboat.simulator.generators import GENERATORS, generate
from longboat.simulator.traces import read_trace, write_trace

HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    return path


def test_lines_in_any_order_and_both_kinds_of_time(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "1970-01-01 00:01:40,5.5,2,11,x\n\n20,1,8,8,x\n1970-01-01T00:00:30Z,1,16,16,y\n")
    trace = read_trace(path)
    assert [(job.submitted, job.duration, job.gpus) for job in trace.jobs] == [(20, 1, 8), (30, 1, 16), (100, 5.5, 2)]
    assert trace.gpu_seconds == 8 + 16 + 11


def test_columns_by_name(tmp_path: Path) -> None:
    (job,) = read_trace(written(tmp_path, "num_gpus, user, timestamp, duration\n4,ann,7,60\n")).jobs
    assert (job.submitted, job.duration, job.gpus) == (7, 60, 4)


def test_jobs_without_gpus_are_counted_and_left_out(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, HEAD + "1,1,0,0,x\n2,1,1,1,x\n"))
    assert (len(trace.jobs), trace.without_gpus) == (1, 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("soon,1,1,1,x", "timestamp: not a time: 'soon'"),
        ("1,-3,1,1,x", "duration: not a number of seconds above 0: '-3'"),
        ("1,nan,1,1,x", "duration: not a number of seconds above 0: 'nan'"),
        ("1,1,1.5,1,x", "num_gpus: not a whole number up to 1000000: '1.5'"),
        ("1,1,-1,1,x", "num_gpus: not a whole number"),
        ("1,1,99999999999999999999,1,x", "num_gpus: not a whole number"),
        ("1,1", "2 columns, expected at least 3"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path, HEAD + "1,1,1,1,x\n" + line + "\n1,1,1,1,x\n")
    with pytest.raises(JobError) as caught:
        read_trace(path)
    assert f"jobs.csv:3:1: {said}" in caught.value.message


def test_all_wrong_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(JobError) as caught:
        read_trace(written(tmp_path, HEAD + "x,1,1\n1,1,1\n1,x,1\n"))
    assert [problem.line for problem in caught.value.problems] == [2, 4]


def test_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(JobError) as caught:
        read_trace(written(tmp_path, "timestamp,gpus\n1,1\n"))
    assert [problem.message for problem in caught.value.problems] == [
        "the column duration is missing",
        "the column num_gpus is missing",
    ]


def test_missing_empty_and_binary_trace_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_trace(tmp_path / "nothing.csv")
    for path in (tmp_path, written(tmp_path, HEAD)):
        with pytest.raises(UsageError):
            read_trace(path)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LongboatError):
        read_trace(tmp_path / "bytes.csv")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError):
        read_trace(tmp_path / "pipe")


@pytest.mark.parametrize("kind", list(GENERATORS))
def test_the_same_seed_gives_the_same_trace_and_survives_a_file(tmp_path: Path, kind: str) -> None:
    trace = generate(kind, seed=1, jobs=300)
    assert len(trace.jobs) == 300
    assert trace == generate(kind, seed=1, jobs=300)
    assert trace != generate(kind, seed=2, jobs=300)
    write_trace(trace, tmp_path / "t.csv")
    again = read_trace(tmp_path / "t.csv")
    assert [(a.submitted, a.duration, a.gpus) for a in again.jobs] == [
        (b.submitted, b.duration, b.gpus) for b in trace.jobs
    ]


def test_philly_has_the_published_statistics() -> None:
    trace = generate("philly", seed=1, jobs=82_247)
    ones = sum(job.gpus == 1 for job in trace.jobs) / len(trace.jobs)
    eights = sum(job.gpus * job.duration for job in trace.jobs if job.gpus == 8) / trace.gpu_seconds
    changes = sorted(
        change
        for job in trace.jobs
        for change in ((job.submitted, job.gpus), (job.submitted + job.duration, -job.gpus))
    )
    running = peak = 0
    for _, change in changes:
        running += change
        peak = max(peak, running)
    assert ones == pytest.approx(0.93, abs=0.005)
    assert eights == pytest.approx(0.48, abs=0.05)
    assert median(job.duration for job in trace.jobs) == pytest.approx(1144, rel=0.05)
    assert peak / 8 == pytest.approx(156, rel=0.15)
