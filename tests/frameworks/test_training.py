"""Unmodified scripts of real frameworks train through `longboat run`, and resume after a rank was killed.

Nearly all of the time goes into importing the frameworks, once for each rank. So `make test` trains once with each way
to start ranks and resumes each framework once, with few ranks; `make soak` does both with every way and all ranks.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from tests.frameworks.conftest import Ended, RunJob

pytestmark = [pytest.mark.frameworks]

STEPS = 12
CRASH_AT = 5
SIGKILLED = 128 + 9


class Case(NamedTuple):
    environment: str
    script: str
    job: dict[str, Any]
    trainers: int  # ranks that say where they start and with what they end
    victim: str  # the node that is blamed when a rank kills itself
    framework: str  # what the job is guessed to be


TWO_BY_TWO = {"nodes": 2, "procs": 2}
LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}

CASES = {
    "torchrun": Case(
        "torch", "train_torch.py", {"run": "torchrun train_torch.py", **TWO_BY_TWO}, 4, "worker-1", "torch"
    ),
    "torch without torchrun": Case(
        "torch", "train_torch.py", {"run": "python train_torch.py", **TWO_BY_TWO}, 4, "worker-1", "torch"
    ),
    "jax": Case("jax", "train_jax.py", {"run": "python train_jax.py", **TWO_BY_TWO}, 4, "worker-1", "jax"),
    "mpi": Case("mpi", "train_mpi.py", {"run": "python train_mpi.py", **TWO_BY_TWO}, 4, "worker-1", "mpi"),
    "mpirun in the command": Case(
        "mpi", "train_mpi.py", {"run": "mpirun -np 4 python train_mpi.py", **TWO_BY_TWO}, 4, "worker-0", "mpi"
    ),
    "tensorflow workers": Case(
        "tensorflow",
        "train_tensorflow.py",
        {"run": "python train_tensorflow.py", "env": LEGACY_KERAS, **TWO_BY_TWO},
        4,
        "worker-1",
        "tensorflow",
    ),
    "tensorflow parameter servers": Case(
        "tensorflow",
        "train_tensorflow_ps.py",
        {
            "run": "python train_tensorflow_ps.py",
            "roles": {"chief": {"nodes": 1}, "worker": {"nodes": 1, "procs": 2}, "ps": {"nodes": 1}},
            "ends": ["chief"],
        },
        1,
        "chief-0",
        "tensorflow",
    ),
    "the older worker contract": Case(
        "tensorflow",
        "worker.py",
        {"run": "python worker.py", "roles": {"ps": {"nodes": 1, "procs": 2}, "worker": {"nodes": 2}}},
        2,
        "worker-0",
        "tensorflow",
    ),
}


def job_of(case: Case, *, crash: bool) -> dict[str, Any]:
    env = dict(case.job.get("env", {}))
    if crash:
        env["CRASH_AT"] = str(CRASH_AT)
    # A short grace: jax and TensorFlow take SIGTERM as a notice of preemption and go on.
    settings = {"name": "trial", "retries": 1, "grace": "2s", "checkpoints": {"to": "./checkpoints"}}
    return {**settings, **case.job, "env": env}


def starts(ended: Ended) -> list[int]:
    return [int(step) for step in re.findall(r"starts at step (\d+)", ended.log)]


def check_equal_parameters(case: Case, ended: Ended) -> None:
    told = ended.log + ended.messages
    assert ended.exit_code == 0, told
    ends = re.findall(rf"ends at step {STEPS} with parameters ([0-9a-f ]+)", ended.log)
    assert len(ends) == case.trainers, told
    assert len(set(ends)) == 1 and " " not in ends[0].strip(), told  # a blank: one trainer saw several values
    assert ended.status["phase"] == "succeeded"
    assert ended.status["spec"]["framework"] == case.framework


SOAK = (pytest.mark.soak,)
RESUMED_ONLY = ("torch without torchrun", "tensorflow workers")  # in `make test`


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name, marks=SOAK if name in RESUMED_ONLY else ()) for name, case in CASES.items()],
)
def test_trains_to_equal_parameters(case: Case, run_job: RunJob) -> None:
    ended = run_job(case.environment, case.script, job_of(case, crash=False))
    check_equal_parameters(case, ended)
    assert len(starts(ended)) == case.trainers
    assert 0 in starts(ended)
    assert ended.status["attempt"] == 1
    if case.environment == "mpi":
        assert sorted(re.findall(r"rank (\d) .* on (\S+)", ended.log)) == [
            ("0", "worker-0"),
            ("1", "worker-0"),
            ("2", "worker-1"),
            ("3", "worker-1"),
        ]


def one_rank_per_node(name: str) -> Case:
    return CASES[name]._replace(job={**CASES[name].job, "procs": 1}, trainers=2)


RESUMED = [
    pytest.param(CASES["mpi"], id="mpi"),
    *(
        pytest.param(one_rank_per_node(name), id=f"{name}, one rank per node")
        for name in ("torch without torchrun", "jax", "tensorflow workers")
    ),
    *(
        pytest.param(CASES[name], id=name, marks=SOAK)
        for name in (
            "torchrun",
            "jax",
            "tensorflow workers",
            "tensorflow parameter servers",
            "the older worker contract",
        )
    ),
]


@pytest.mark.parametrize("case", RESUMED)
def test_resumes_after_a_rank_was_killed(case: Case, run_job: RunJob) -> None:
    ended = run_job(case.environment, case.script, job_of(case, crash=True))
    check_equal_parameters(case, ended)
    assert starts(ended)[0] == 0, ended.log
    assert min(starts(ended)[-case.trainers :]) > 0, ended.log
    first, second = ended.status["attempts"]
    assert second.get("failure") is None
    assert first["failure"]["exit_code"] == SIGKILLED, first
    assert first["failure"]["cause"] == "signal", first
    assert first["failure"]["rank"]["node"] == case.victim, first
