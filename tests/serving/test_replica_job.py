"""The job of a replica, and the command after `--`."""

from __future__ import annotations

import pytest

from longboat.core.errors import UsageError
from longboat.core.jobs import Checkpoints, Gpus, Job, Resources, Retries, Role, Secret, Serve
from longboat.serving.replica_job import checked_command, replica_job

TRAINING = Job(
    name="train",
    roles=(
        Role(name="ps", run="ps"),
        Role(
            name="worker", run="python train.py", nodes=4, image="img:1", env={"LR": "1"}, resources=Resources(cpus=8)
        ),
    ),
    ends=("worker",),
    framework="torch",
    setup="pip install x",
    secrets=(Secret(name="TOKEN"),),
    checkpoints=Checkpoints(to="s3://b/c", keep=5),
    retries=Retries(count=3),
    timeout_s=60.0,
    after=("prepare",),
)


def test_a_replica_has_what_the_training_had_and_one_process() -> None:
    serve = Serve(resources=Resources(gpus=Gpus(count=1)))
    command = ("app", "--port", "$PORT", "--at=${HOST}:$PORT", "$PORTAL")
    job = replica_job(TRAINING, serve, name="svc-r1", command=command, host="127.0.0.1", port=4000)
    (role,) = job.roles
    assert role.run == ("app", "--port", "4000", "--at=127.0.0.1:4000", "$PORTAL")
    assert (role.image, role.nodes, role.procs) == ("img:1", 1, 1)
    assert role.env == {"LR": "1", "HOST": "127.0.0.1", "PORT": "4000"}
    assert role.resources == Resources(gpus=Gpus(count=1))
    assert (job.setup, job.secrets) == (TRAINING.setup, TRAINING.secrets)
    # It is not the training: no retries of its own, no limit, no predecessors, no checkpoints to write.
    assert (job.retries, job.timeout_s, job.after, job.checkpoints) == (Retries(), None, (), Checkpoints())


def test_a_shell_line_is_left_to_the_shell() -> None:
    job = replica_job(TRAINING, Serve(), name="r", command="app --port $PORT", host="0.0.0.0", port=80)
    assert job.roles[0].run == "app --port $PORT"


@pytest.mark.parametrize(
    ("words", "command", "is_noted"),
    [
        (("python", "app.py", "--port", "$PORT"), ("python", "app.py", "--port", "$PORT"), False),
        (("python", "app.py", "--port"), ("python", "app.py", "--port", "$PORT"), True),
        (("python", "app.py", "--port", ""), ("python", "app.py", "--port", "$PORT"), True),
        (("python", "app.py", "--port="), ("python", "app.py", "--port=$PORT"), True),
        (("python app.py --port $PORT",), "python app.py --port $PORT", False),
        (("./serve",), ("./serve",), False),
    ],
)
def test_a_port_that_the_callers_shell_took_away_is_put_back(
    words: tuple[str, ...], command: object, is_noted: bool
) -> None:
    got, notice = checked_command(words)
    assert got == command
    assert (notice is not None) == is_noted


@pytest.mark.parametrize("words", [(), ("",), (" ",)])
def test_no_command(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        checked_command(words)
