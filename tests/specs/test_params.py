"""Parameters in commands and variables; no value becomes a command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.core.errors import JobError
from longboat.core.jobs import Job, Range, Role, Scalar, Sweep
from longboat.core.variables import param_variables
from longboat.specs.params import is_in_space, mentioned, with_params
from longboat.specs.read import read_job


def job(run: str | tuple[str, ...], **env: str) -> Job:
    return Job(name="j", roles=(Role(name="worker", run=run, env=env),), setup="prepare ${sweep.lr}")


def test_values_are_filled_in_where_they_stand() -> None:
    made = with_params(job("train --lr ${sweep.lr} ${HOME}", LR="x${sweep.lr}"), {"lr": 0.1})
    assert made.roles[0].run == "train --lr 0.1 ${HOME}"
    assert (made.roles[0].env, made.setup, made.params) == ({"LR": "x0.1"}, "prepare 0.1", {"lr": 0.1})
    assert with_params(job(("train", "${sweep.opt}")), {"opt": "a b; c"}).roles[0].run == ("train", "a b; c")
    assert with_params(job("x ${sweep.on}"), {"on": True}).roles[0].run == "x true"
    assert mentioned(job("x ${sweep.b} ${sweep.a}", X="${sweep.c}")) == ["lr", "b", "a", "c"]


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20))
def test_a_shell_gives_the_value_back_and_runs_nothing(value: str) -> None:
    made = with_params(job('printf %s "${sweep.x}"'), {"x": value})
    done = subprocess.run(
        ["sh", "-c", str(made.roles[0].run)], env={**os.environ, **param_variables({"x": value})}, capture_output=True
    )
    assert (done.stdout.decode(), done.stderr) == (value, b"")


def test_names_that_are_no_parameters_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no parameter has this name"):
        read_job([], fields={"run": "x ${sweep.lr}"}, environment={})
    with pytest.raises(JobError, match="run, setup and env only"):
        read_job([], fields={"run": "x", "image": "${sweep.lr}", "params": {"lr": 1}}, environment={})
    (tmp_path / "job.yaml").write_text("name: x\nenv:\n  LR: ${sweep.rate}\nrun: [train, '${sweep.lr}']\n")
    with pytest.raises(JobError) as error:
        read_job([tmp_path / "job.yaml"], environment={})
    assert [(each.line, each.column) for each in error.value.problems] == [(3, 7), (4, 14)]
    single = read_job([], fields={"run": "x ${sweep.lr}", "params": {"lr": 1}}, environment={}).job
    assert single.roles[0].run == "x 1"


POINTS: list[tuple[tuple[Scalar, ...] | Range, list[Scalar], list[Scalar]]] = [
    ((1, 2.0, "a"), [1, 2.0, "a"], [1.0, True, 2, "1", "b"]),
    ((True,), [True], [1, 1.0, "true", False]),
    (Range(low=0.0, high=1.0), [0.0, 0.123, 1.0], [0, True, "0.5", -0.1, 1.1]),
    (Range(low=1.0, high=9.0, is_whole=True), [1, 4, 9], [4.0, True, 0, 10]),
    (Range(low=0.0, high=0.5, step=0.1), [0.0, 0.1, 0.3, 0.5], [0.05, 0.30001, 0.6, 0]),
    (Range(low=16.0, high=70.0, step=16.0, is_whole=True), [16, 32, 64], [17, 70, 32.0]),
    (Range(low=0.0, high=0.95, step=0.3), [0.9], [0.95]),
]


@pytest.mark.parametrize(("values", "inside", "outside"), POINTS)
def test_points_of_a_space_have_its_types_and_its_steps(
    values: tuple[Scalar, ...] | Range, inside: list[Scalar], outside: list[Scalar]
) -> None:
    sweep = Sweep(space={"x": values})
    assert [value for value in inside if not is_in_space(sweep, {"x": value})] == []
    assert [value for value in outside if is_in_space(sweep, {"x": value})] == []
