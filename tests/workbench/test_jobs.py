"""Workbench runs as jobs: one node, one process, the user's image and resources, values quoted."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from longboat.core.errors import UsageError
from longboat.core.jobs import Gpus, Job, Resources, Retries, Role
from longboat.workbench.jobs import (
    KIND_LABEL,
    START,
    BoardSelection,
    ServerOptions,
    bench_job,
    board_job,
    command,
    is_same,
)

HOUR = ServerOptions(idle_s=3600)


def words_of(job: Job) -> list[str]:
    run = job.roles[0].run
    assert isinstance(run, str) and run.startswith(START)
    return shlex.split(run[len(START) :])


def test_a_board_names_its_runs_and_carries_no_code() -> None:
    job = board_job(BoardSelection(runs="/home/a b/runs", names=("cnn", "x;y")), HOUR)
    assert words_of(job) == ["board", "--idle", "3600", "--runs", "/home/a b/runs", "--run", "cnn", "--run", "x;y"]
    assert job.workdir is None
    assert job.labels == {KIND_LABEL: "board"}


def test_boards_of_the_same_runs_are_the_same() -> None:
    one = board_job(BoardSelection(runs="/r", names=("a",)), HOUR)
    assert is_same(one, board_job(BoardSelection(runs="/r", names=("a",)), HOUR))
    assert not is_same(one, board_job(BoardSelection(runs="/r", names=("b",)), HOUR))
    named = ServerOptions(idle_s=60, port=7000, is_exact=True)
    there = board_job(BoardSelection(runs="/r", names=("a",)), named)
    odd = msgspec.structs.replace(one, roles=(msgspec.structs.replace(one.roles[0], run="exec 'x"),))
    assert not is_same(odd, one), "what a record says is anybody's word"
    assert is_same(there, one), "who names no port gets the one that is open, wherever it is"
    assert not is_same(one, there), "who names one gets that"
    assert is_same(there, there)
    outside = ServerOptions(idle_s=60, port=7000, is_exact=True, is_open=True)
    assert not is_same(there, board_job(BoardSelection(runs="/r", names=("a",)), outside))


def test_a_job_keeps_what_it_needs_and_loses_what_a_person_does_not() -> None:
    role = Role(name="train", run="python t.py", nodes=4, procs=8, image="i", resources=Resources(gpus=Gpus(count=8)))
    job = Job(name="cnn", roles=(role,), ends=("train",), setup="pip install x", retries=Retries(count=3), stall_s=60)
    made = bench_job(job, "lab", ServerOptions(idle_s=0, keeps_edits=True))
    assert words_of(made) == ["lab", "--idle", "0", "--edits"]
    assert (made.roles[0].nodes, made.roles[0].procs) == (1, 1)
    assert (made.roles[0].image, made.roles[0].resources.gpus.count, made.setup) == ("i", 8, "pip install x")
    assert (made.retries.count, made.stall_s) == (0, None)


def test_several_roles_are_no_notebook() -> None:
    roles = (Role(name="ps", run="a"), Role(name="worker", run="b"))
    with pytest.raises(UsageError, match="several roles: ps, worker"):
        bench_job(Job(name="x", roles=roles), "lab", HOUR)


def test_ports() -> None:
    assert "--port 7000 --exact" in command("lab", ServerOptions(idle_s=1, port=7000, is_exact=True))
    assert "--port" not in command("lab", HOUR)
