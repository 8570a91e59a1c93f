"""What a rank never inherits, what a job cannot set, and the small rules of values. The variables: test_layouts."""

from __future__ import annotations

import pytest

from longboat.core.jobs import Framework, Job, Role
from longboat.core.variables import host_port, is_identity, is_loopback, is_scrubbed, scrubbed


@pytest.mark.parametrize(
    "name, expected",
    [
        ("RANK", True), ("PET_NODE_RANK", True), ("TF_CONFIG", True), ("OMPI_COMM_WORLD_RANK", True),
        ("SLURM_PROCID", True), ("PMIX_RANK", True), ("LONGBOAT_RUN", True), ("LONGBOAT_LIFELINE_FD", True),
        ("MASTER_ADDR", True), ("SKYPILOT_NODE_RANK", True), ("JAX_COORDINATOR_ADDRESS", True),
        ("LONGBOAT_HOME", False), ("PATH", False), ("RANKING", False), ("NCCL_DEBUG", False), ("CUDA_HOME", False),
    ],
)  # fmt: skip
def test_what_a_rank_never_inherits(name: str, expected: bool) -> None:
    assert is_scrubbed(name) is expected
    assert scrubbed({name: "x", "HOME": "/"}) == ([name] if expected else [])


@pytest.mark.parametrize(
    "framework, name, expected",
    [
        ("none", "RANK", True),
        ("none", "LONGBOAT_ANYTHING", True),
        ("torch", "PET_NODE_RANK", True),
        ("torch", "PET_NNODES", False),
        ("torch", "MASTER_PORT", False),
        ("tensorflow", "TF_CONFIG", True),
        ("none", "TF_CONFIG", False),
        ("mpi", "OMPI_COMM_WORLD_RANK", True),
        ("mpi", "OMPI_MCA_btl", False),
    ],
)
def test_what_a_job_cannot_set(framework: Framework, name: str, expected: bool) -> None:
    job = Job(name="j", framework=framework, roles=(Role(name="worker", run="x"),))
    assert is_identity(job, name) is expected


@pytest.mark.parametrize(
    "address, expected", [("10.0.0.1", "10.0.0.1:80"), ("fd00::1", "[fd00::1]:80"), ("a.b", "a.b:80")]
)
def test_host_port(address: str, expected: str) -> None:
    assert host_port(address, 80) == expected


@pytest.mark.parametrize(
    "addresses, expected",
    [
        (["127.0.0.2", "127.0.0.3"], True),
        (["::1"], True),
        (["127.0.0.2", "10.0.0.1"], False),
        (["worker-0.run"], False),
    ],
)
def test_loopback(addresses: list[str], expected: bool) -> None:
    assert is_loopback(addresses) is expected
