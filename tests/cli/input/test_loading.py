"""Words, flags and stdin become a job, through the real command line."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Longboat

JOB = "name: job\nrun: python train.py\n"
ROLES = "roles:\n  ps: {run: sleep 1}\n  worker: {run: python train.py}\n"


def checked(longboat: Longboat, *args: str, stdin: str = "") -> dict:
    return json.loads(longboat("check", "-o", "json", *args, stdin=stdin).out)["job"]


def test_arguments_after_a_job_file(longboat: Longboat) -> None:
    (longboat.folder / "job.yaml").write_text(JOB)
    done = longboat("run", "-q", "job.yaml", "--", "--epochs", "1")
    assert done.out == "epoch 0\n"
    job = checked(longboat, "job.yaml", "--nodes", "2", "--", "--note", "it's ${HOME}")
    assert job["run"] == "python train.py --note 'it'\"'\"'s ${HOME}'" and job["nodes"] == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [(ROLES, ["several roles: ps, worker", "roles.ps.run"]), ("run: cd x; ls\n", ["more than one command", '"$@"'])],
)
def test_arguments_that_belong_to_nobody(longboat: Longboat, text: str, words: list[str]) -> None:
    (longboat.folder / "job.yaml").write_text(text)
    answer = longboat("run", "job.yaml", "--", "--lr", "3", code=201)
    assert all(word in answer.err for word in words) and "hint: " in answer.err


def test_a_job_on_stdin(longboat: Longboat) -> None:
    assert longboat("run", "-q", "-", "--artifact", "*.txt", "--", "--epochs", "1", stdin=JOB).out == "epoch 0\n"
    wrong = longboat("check", "-", stdin="run: x\nnodse: 2\n", code=201)
    assert wrong.err.startswith("error: stdin:2:1: nodse: ")
    assert longboat("run", "-", stdin="", code=201).err.startswith("error: stdin:")


def test_flags_are_validated_like_fields(longboat: Longboat) -> None:
    (longboat.folder / "job.yaml").write_text(JOB + "include: [a.bin]\nvolumes: {cache: {scratch: true}}\n")
    for name in ("a.bin", "b.bin"):
        (longboat.folder / name).touch()
    flags = ["--include", "b.bin", "--volume", "d=scratch:memory", "--stall", "15m", "--setup", "true"]
    job = checked(longboat, "job.yaml", *flags)
    assert job["include"] == ["a.bin", "b.bin"] and set(job["volumes"]) == {"cache", "d"}
    assert (job["stall"], job["setup"]) == ("15m", "true")
    wrong = longboat("check", "job.yaml", "--stall", "soon", "--volume", "d=scratch:ro", code=201)
    assert "stall: " in wrong.err and "volumes.d: " in wrong.err
