"""Which framework a command belongs to, and who starts its processes: one named row per behaviour."""

from __future__ import annotations

import pytest

from longboat.core.frameworks import (
    TorchrunShape,
    command_notices,
    guess_framework,
    mpirun_processes,
    script_of,
    starter_of,
    torchrun_shape,
)
from longboat.core.jobs import Command, Framework, Job, Role

STARTERS: dict[str, tuple[Command, str]] = {
    "plain python": ("python train.py", "longboat"),
    "plain python as a list": (("python", "train.py"), "longboat"),
    "torchrun": ("torchrun train.py", "torchrun"),
    "torchrun as a list": (("torchrun", "train.py"), "torchrun"),
    "torchrun by its path": ("/opt/venv/bin/torchrun train.py", "torchrun"),
    "torchrun as a module": ("python -m torch.distributed.run train.py", "torchrun"),
    "torchrun as a module, options before": ("python3.11 -u -X dev -m torch.distributed.run train.py", "torchrun"),
    "torchrun as a module, options joined": ("python -um torch.distributed.run train.py", "torchrun"),
    "the older launch module": ("python -m torch.distributed.launch train.py", "torchrun"),
    "after assignments": ("FOO=1 BAR='a b' torchrun train.py", "torchrun"),
    "after exec": ("exec torchrun train.py", "torchrun"),
    "after uv run": ("uv run torchrun train.py", "torchrun"),
    "after uv run with options": ("uv run --with numpy --no-sync torchrun train.py", "torchrun"),
    "after conda run": ("conda run -n ml torchrun train.py", "torchrun"),
    "after a cd": ("cd src && torchrun train.py", "torchrun"),
    "after a semicolon": ("set -e; torchrun train.py", "torchrun"),
    "on a later line": ("pip install -r requirements.txt\ntorchrun train.py\n", "torchrun"),
    "over a continued line": ("torchrun \\\n  train.py", "torchrun"),
    "inside an if": ("if true; then torchrun train.py; fi", "torchrun"),
    "in a subshell": ("(torchrun train.py)", "torchrun"),
    "inside sh -c": (("bash", "-lc", "cd x && exec torchrun train.py"), "torchrun"),
    "after timeout": ("timeout -k 5 1h torchrun train.py", "torchrun"),
    "after env": ("env -u FOO BAR=1 torchrun train.py", "torchrun"),
    "after numactl": ("numactl --cpunodebind=0 -m 0 torchrun train.py", "torchrun"),
    "after nsys profile": ("nsys profile -o trace torchrun train.py", "torchrun"),
    "mpirun": ("mpirun -np 4 python train.py", "mpirun"),
    "mpiexec": ("mpiexec python train.py", "mpirun"),
    "orterun by its path": ("/usr/bin/orterun ./a.out", "mpirun"),
    "accelerate starts its own": ("accelerate launch train.py", "longboat"),
    "torchrun as an argument": ("echo torchrun train.py", "longboat"),
    "torchrun as a script's argument": ("python train.py --launcher torchrun", "longboat"),
    "torchrun in a comment": ("python train.py # not torchrun train.py", "longboat"),
    "torchrun in a quoted text": ("python -c 'print(1)' '; torchrun x'", "longboat"),
    "an assignment named so": ("torchrun=1 python train.py", "longboat"),
    "a shell script": ("bash run.sh", "longboat"),
    "an open quote": ("torchrun 'train.py", "torchrun"),
    "uv without run": ("uv pip install torch", "longboat"),
    "nothing": ("", "longboat"),
    "an empty list": ((), "longboat"),
    "a wrapper of nothing": ("exec", "longboat"),
}


@pytest.mark.parametrize("command, expected", STARTERS.values(), ids=STARTERS.keys())
def test_starter(command: Command, expected: str) -> None:
    assert starter_of("none", command) == expected


def test_framework_mpi_is_started_by_mpirun_even_without_naming_it() -> None:
    assert starter_of("mpi", "python train.py") == "mpirun"
    assert starter_of("mpi", "torchrun train.py") == "torchrun"


W = ("worker",)
NOBODY = "neither the command nor the script names a framework"
GUESSES: dict[str, tuple[Command, tuple[str, ...], str | None, Framework, str]] = {
    "torchrun": ("torchrun train.py", W, None, "torch", "the command is torchrun"),
    "torchrun module": (
        "python -m torch.distributed.run t.py",
        W,
        None,
        "torch",
        "the command is python -m torch.distributed.run",
    ),
    "mpirun": ("mpirun python t.py", W, "import torch", "mpi", "the command is mpirun"),
    "accelerate": ("accelerate launch t.py", W, None, "torch", "the command is accelerate"),
    "role ps": ("python t.py", ("ps", "worker"), "import torch", "tensorflow", "there is a role ps"),
    "role chief": ("python t.py", ("worker", "chief"), None, "tensorflow", "there is a role chief"),
    "command before role": ("torchrun t.py", ("ps", "worker"), None, "torch", "the command is torchrun"),
    "imports jax": ("python train.py", W, "import jax\n", "jax", "train.py imports jax"),
    "imports torch under a name": ("python a/b.py", W, "import torch as t", "torch", "a/b.py imports torch"),
    "from torch": ("python train.py", W, "from torch import nn", "torch", "train.py imports torch"),
    "a module of torch": ("python train.py", W, "import torch.nn.functional as F", "torch", "train.py imports torch"),
    "imports tensorflow": ("python t.py", W, "import tensorflow as tf", "tensorflow", "t.py imports tensorflow"),
    "imports mpi4py": ("python t.py", W, "from mpi4py import MPI", "mpi", "t.py imports mpi4py"),
    "inside a function": ("python t.py", W, "def f():\n    import jax\n", "jax", "t.py imports jax"),
    "jax with torch's data loader": ("python t.py", W, "import torch\nimport jax", "jax", "t.py imports jax"),
    "torch.distributed beside jax": (
        "python t.py",
        W,
        "import jax\nimport torch.distributed as dist",
        "torch",
        "t.py imports torch.distributed",
    ),
    "tf.distribute beside torch": (
        "python t.py",
        W,
        "import torch\nimport tensorflow as tf\ns = tf.distribute.MirroredStrategy()",
        "tensorflow",
        "t.py imports tensorflow.distribute",
    ),
    "torchvision is not torch": (
        "python t.py",
        W,
        "import torchvision",
        "none",
        NOBODY,
    ),
    "a relative import": (
        "python t.py",
        W,
        "from .torch import x",
        "none",
        NOBODY,
    ),
    "a word in a text": (
        "python t.py",
        W,
        "x = 'import torch'",
        "none",
        NOBODY,
    ),
    "a syntax error": ("python t.py", W, "import torch\nprint 'x'\n", "torch", "t.py imports torch"),
    "a null byte": ("python t.py", W, "import torch\n\0", "torch", "t.py imports torch"),
    "deep nesting": ("python t.py", W, "import torch\nx = " + "(" * 5000, "torch", "t.py imports torch"),
    "a bad escape": ("python t.py", W, "import torch\nx = '\\d'\n", "torch", "t.py imports torch"),
    "module": ("python -m pkg.train", W, "import torch", "torch", "pkg/train.py imports torch"),
    "nothing known": ("./train", W, None, "none", NOBODY),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command, roles, script, framework, reason", GUESSES.values(), ids=GUESSES.keys())
def test_guess(command: Command, roles: tuple[str, ...], script: str | None, framework: str, reason: str) -> None:
    assert guess_framework(command, roles, script) == (framework, reason)


@pytest.mark.parametrize(
    "command, expected",
    [
        ("python train.py --epochs 3", "train.py"),
        ("cd src && python -u train.py", "train.py"),
        ("torchrun --nproc-per-node 2 pkg/train.py", "pkg/train.py"),
        ("mpirun -np 2 python train.py", "train.py"),
        ("python -m pkg.train", "pkg/train.py"),
        ("python -m torch.distributed.run train.py", "train.py"),
        (("python", "train it.py"), "train it.py"),
        ("./a.out", None),
        ("python -c 'print(1)'", None),
    ],
)
def test_script_of(command: Command, expected: str | None) -> None:
    assert script_of(command) == expected


@pytest.mark.parametrize(
    "command, expected",
    [
        ("torchrun train.py", TorchrunShape(None, None)),
        ("torchrun --nnodes 2 --nproc-per-node=4 train.py", TorchrunShape("2", "4")),
        ("torchrun --nnodes=1:4 --nproc_per_node gpu train.py", TorchrunShape("1:4", "gpu")),
        ("torchrun --standalone train.py", TorchrunShape("1", None)),
        ("torchrun train.py --nnodes 3", TorchrunShape(None, None)),
        ("python train.py --nnodes 3", None),
    ],
)
def test_torchrun_shape(command: Command, expected: TorchrunShape | None) -> None:
    assert torchrun_shape(command) == expected


def job(run: Command, framework: Framework = "torch", *, nodes: int = 2, procs: int = 2, **env: str) -> Job:
    return Job(name="j", framework=framework, roles=(Role(name="worker", run=run, nodes=nodes, procs=procs, env=env),))


NOTICES: dict[str, tuple[Job, str | None]] = {
    "flags that agree": (job("torchrun --nnodes 2 --nproc-per-node 2 t.py"), None),
    "no flags": (job("torchrun t.py"), None),
    "nodes contradict": (job("torchrun --nnodes 3 t.py"), "--nnodes 3 but the job has nodes: 2"),
    "procs contradict": (job("torchrun --nproc-per-node=8 t.py"), "--nproc-per-node 8 but the job has procs: 2"),
    "standalone on two nodes": (job("torchrun --standalone t.py"), "--nnodes 1 but the job has nodes: 2"),
    "elastic is not judged": (job("torchrun --nnodes 1:4 --nproc-per-node gpu t.py"), None),
    "accelerate": (job("accelerate launch t.py"), "accelerate starts processes of its own"),
    "mpirun contradicts": (job("mpirun -np 3 ./a", "mpi"), "says 3 processes but nodes x procs is 4"),
    "mpirun on one node": (job("mpirun -np 3 ./a", "mpi", nodes=1), None),
    "mpirun agrees": (job("mpirun -np 4 ./a", "mpi"), None),
    "distributed Keras": (job("python t.py", "tensorflow"), "Keras 3 does not train with MultiWorkerMirrored"),
    "distributed Keras, answered": (job("python t.py", "tensorflow", TF_USE_LEGACY_KERAS="1"), None),
    "one TensorFlow process": (job("python t.py", "tensorflow", nodes=1, procs=1), None),
}


@pytest.mark.parametrize("the_job, expected", NOTICES.values(), ids=NOTICES.keys())
def test_notices(the_job: Job, expected: str | None) -> None:
    found = command_notices(the_job)
    assert len(found) == (0 if expected is None else 1), found
    assert expected is None or expected in found[0]


@pytest.mark.parametrize(
    "command, expected",
    [
        ("mpirun -np 2 python t.py", 2),
        (("mpiexec", "-n", "3", "./a", "-n", "9"), 3),
        ("mpirun -np 1 ./a : -np 2 ./b", 3),
        ("mpirun ./a", None),
        ("mpirun -np 2 ./a : ./b", None),
        ("python t.py -np 2", None),
    ],
)
def test_how_many_processes_an_mpirun_of_the_command_starts(command: Command, expected: int | None) -> None:
    assert mpirun_processes(command) == expected
