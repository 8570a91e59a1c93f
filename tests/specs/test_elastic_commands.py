"""Ranges of nodes in job files, flags and torchrun's command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import JobError
from longboat.core.jobs import Role
from longboat.specs.dump import job_to_mapping
from longboat.specs.read import read_job


def worker(**fields: Any) -> Role:
    return read_job([], fields={"run": "python train.py", **fields}, environment={}, cwd=Path("/tmp")).job.roles[0]


@pytest.mark.parametrize("nodes", [{"min": 2, "max": 8}, "2-8", " 2 - 8 "])
def test_a_range(nodes: object) -> None:
    role = worker(nodes=nodes)
    assert (role.nodes, role.min_nodes, role.max_nodes) == (8, 2, 8)


def test_a_range_of_one_is_a_number() -> None:
    assert (worker(nodes="4-4").nodes, worker(nodes={"min": 4, "max": 4}).min_nodes) == (4, None)


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("torchrun --nnodes=2:8 --nproc-per-node 2 train.py", "torchrun --nproc-per-node 2 train.py"),
        ("cd src && torchrun --nnodes 2:8 train.py --nnodes=1:2", "cd src && torchrun train.py --nnodes=1:2"),
        (["torchrun", "--nnodes", "2:8", "train.py"], ("torchrun", "train.py")),
        (["python", "-m", "torch.distributed.run", "--nnodes=2:8", "train.py"],
         ("python", "-m", "torch.distributed.run", "train.py")),
    ],
)  # fmt: skip
def test_torchruns_own_range(command: Any, kept: Any) -> None:
    role = worker(run=command)
    assert (role.nodes, role.min_nodes, role.max_nodes, role.run) == (8, 2, 8, kept)
    assert worker(run=command, nodes="3-4").run == kept and worker(run=command, nodes="3-4").nodes == 4


def test_a_number_leaves_torchruns_command_alone() -> None:
    command = "torchrun --nnodes=2:8 train.py"
    assert (worker(run=command, nodes=2).run, worker(run=command, nodes=2).min_nodes) == (command, None)
    assert worker(run="torchrun --nnodes=4:4 train.py").min_nodes is None


@pytest.mark.parametrize(
    ("fields", "said", "hint"),
    [
        ({"nodes": "2:8"}, 'found the text "2:8"', "write 2-8"),
        ({"nodes": "2..8"}, 'found the text "2..8"', "write 2-8"),
        ({"nodes": "8..2"}, 'found the text "8..2"', "write 2-8"),
        ({"nodes": "8-2"}, "found 8 to 2 nodes, expected min <= max", ""),
        ({"nodes": {"min": 2}}, 'the field "max" is missing', ""),
        ({"nodes": {"min": 0, "max": 2}}, "nodes.min: found the number 0", ""),
        ({"run": "torchrun --nnodes 4 train.py", "nodes": "2-8"}, "says --nnodes 4", "leave it out"),
        ({"run": "mpirun -np 4 train", "nodes": "2-8"}, "says -np 4", "leave it out"),
        ({"run": "torchrun --nnodes=8:2 train.py"}, "worker says --nnodes 8:2, expected", "write --nnodes=2:8"),
        ({"run": "torchrun --nnodes 8:2 train.py", "nodes": 2}, "says --nnodes 8:2", "leave it out"),
        ({"run": ["torchrun", "--nnodes=0:4", "train.py"]}, "says --nnodes 0:4", "write --nnodes=1:4"),
        ({"roles": {"ps": {"nodes": "1-2"}, "worker": {}}}, "the role ps has a range", ""),
        ({"roles": {"a": {"nodes": "1-2"}, "b": {"nodes": "1-2"}}}, "the roles a, b have ranges", "nodes: 2"),
        ({"nodes": "1-2", "sweep": {"lr": [1, 2]}}, "trials of a sweep have one size", ""),
        ({"nodes": "1-60000"}, "from 1 to 10000", ""),
    ],
)
def test_mistakes(fields: dict[str, Any], said: str, hint: str) -> None:
    with pytest.raises(JobError) as caught:
        worker(**fields)
    assert said in str(caught.value)
    assert hint in " ".join(problem.hint or "" for problem in caught.value.problems)


def test_it_is_written_as_it_is_read() -> None:
    fields = {"run": "python train.py", "nodes": "2-8", "grow": "now", "batch": "global"}
    job = read_job([], fields=fields, environment={}, cwd=Path("/tmp")).job
    shown = job_to_mapping(job)
    assert shown["nodes"] == {"min": 2, "max": 8} and (shown["grow"], shown["batch"]) == ("now", "global")
    again = read_job([], fields=shown, environment={}, cwd=Path("/tmp")).job
    assert again.roles == job.roles and (again.grow, again.batch) == (job.grow, job.batch)
