"""What a script tells, and that a first job file loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import JobError
from longboat.specs.init_template import InitAnswers, ScriptInspection, inspect_script, write_job
from longboat.specs.read import read_job

TORCH = """
import argparse, os
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("-e", "--epochs", type=int)
parser.add_argument("--lr", default=0.1)
parser.add_argument("positional")
dist.init_process_group("gloo")
torch.save({}, "x.pt")
"""


def test_torch_script() -> None:
    found = inspect_script(TORCH)
    assert found.framework == "torch" and "torch" in found.reason
    assert found.flags == ("--epochs", "--lr")
    assert found.uses_torchrun and found.saves_checkpoints and found.error is None


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import tensorflow as tf", "tensorflow"),
        ("import jax", "jax"),
        ("from mpi4py import MPI", "mpi"),
        ("import numpy", None),
    ],
)
def test_frameworks(text: str, framework: str | None) -> None:
    found = inspect_script(text)
    assert found.framework == framework and not found.uses_torchrun and not found.saves_checkpoints


def test_click_options_and_keras_checkpoints() -> None:
    found = inspect_script("import click, keras\n@click.option('--n')\ndef f(n): keras.callbacks.ModelCheckpoint('x')")
    assert found.flags == ("--n",) and found.saves_checkpoints


@pytest.mark.parametrize("text", ["def (", "\0", "(" * 5000, "x = 1\n  y = 2"])
def test_what_is_not_python(text: str) -> None:
    found = inspect_script(text)
    assert found.error and "\n" not in found.error
    assert found == ScriptInspection(error=found.error)


@pytest.mark.parametrize(
    "answers",
    [
        InitAnswers(name="a", run="python train.py"),
        InitAnswers(name="a", run="python 'my script.py' --x: 3 # no", nodes=2, procs="auto", gpus="H100:8"),
        InitAnswers(name="a", run="mpirun x", gpus="2", framework="mpi", image="a/b:c", checkpoints="./c", retries=3),
    ],
)
def test_written_file_loads_and_says_what_was_answered(answers: InitAnswers, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(write_job(answers), encoding="utf-8")
    job = read_job([file], environment={}).job
    role = job.roles[0]
    assert (job.name, role.run, role.nodes, job.retries.count) == (
        answers.name,
        answers.run,
        answers.nodes,
        answers.retries,
    )
    assert role.image == answers.image and job.checkpoints.to == answers.checkpoints
    assert role.procs == (max(1, role.resources.gpus.count) if answers.procs == "auto" else answers.procs)
    if answers.framework:
        assert job.framework == answers.framework


def test_every_commented_field_is_real(tmp_path: Path) -> None:
    text = write_job(InitAnswers(name="a", run="x"))
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ") and ": " in line]
    suggested = [line for line in lines if line.split(":")[0].isidentifier()]
    assert len(suggested) >= 5
    file = tmp_path / "job.yaml"
    file.write_text("run: x\n" + "\n".join(suggested), encoding="utf-8")
    read_job([file], environment={})


def test_impossible_answers_are_refused() -> None:
    with pytest.raises(JobError) as caught:
        write_job(InitAnswers(name="A b", run="x", gpus="x y", procs="many"))
    assert {problem.path for problem in caught.value.problems} == {"name", "gpus", "procs"}
