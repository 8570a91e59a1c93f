"""Can this job ever run here: tables of jobs and machines. The refusals of a whole engine are in tests/conformance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.errors import Refused
from longboat.core.jobs import DataImport, Gpus, Job, Resources, Role, Volume
from longboat.engines.local.containers.choice import ContainerChoice
from longboat.engines.local.queue.machine import Gpu, LocalMachine
from longboat.engines.local.queue.requests import matches, request_of
from longboat.engines.local.submit.preflight import check
from tests.engines.local.values import GiB, gpu, job, machine, role

H100 = gpu("u1", 0, type="NVIDIA H100 80GB HBM3", memory=80 * GiB)
T4 = gpu("u2", 1, type="Tesla T4", memory=16 * GiB)


@pytest.mark.parametrize(
    ("wanted", "h100", "t4"),
    [
        (Gpus(count=1), True, True),
        (Gpus(count=1, type="H100"), True, False),
        (Gpus(count=1, type="h100"), True, False),
        (Gpus(count=1, memory=20 * GiB), True, False),
        (Gpus(count=1, memory=80 * GiB), True, False),
        (Gpus(count=1, memory=81 * GiB), False, False),
        (Gpus(count=1, type="T4", memory=GiB), False, True),
    ],
)
def test_which_gpu_will_do(wanted: Gpus, h100: bool, t4: bool) -> None:
    assert (matches(H100, wanted), matches(T4, wanted)) == (h100, t4)


def test_a_gpu_of_which_nothing_is_known_has_no_type_and_no_size() -> None:
    assert matches(gpu("x"), Gpus(count=1))
    assert not matches(gpu("x"), Gpus(count=1, type="H100"))
    assert not matches(gpu("x"), Gpus(count=1, memory=1))


def test_the_request_is_the_sum_over_nodes() -> None:
    asked = request_of(job(roles=(role("ps", nodes=2, cpus=1.5), role(nodes=3, gpus=2, memory=GiB))))
    assert (asked.cpus, asked.memory, asked.gpu_count) == (3.0, 3 * GiB, 6)
    assert [each.count for each in asked.gpus] == [0, 0, 2, 2, 2]


FITS: list[tuple[Job, LocalMachine]] = [
    (job(), machine()),
    (job(roles=(role(gpus=2),)), machine(H100, T4)),
    (job(roles=(role(nodes=8, cpus=1.0),)), machine()),
    (job(roles=(role(memory=16 * GiB, shm=GiB, disk=100 * GiB),)), machine()),
    (job(volumes=(Volume(target="/data", path="/data"),)), machine()),
    (job(volumes=(Volume(target="data", scratch=True),)), machine()),
]


@pytest.mark.parametrize(("fitting", "here"), FITS)
def test_jobs_that_fit_have_no_refusal(fitting: Job, here: LocalMachine) -> None:
    assert check(fitting, here) == []


REFUSED: list[tuple[Job, LocalMachine, str, str]] = [
    (job(roles=(role(gpus=1),)), machine(), "1 GPU (1 x 1) and there are 0", "`gpus: 0`"),
    (
        job(roles=(role(gpus=Gpus(count=8, type="B200")),)),
        machine(),
        "8 GPUs (1 x 8 B200) and there are 0",
        "`gpus: 0`",
    ),
    (job(roles=(role(nodes=2, gpus=8),)), machine(H100, T4), "16 GPUs (2 x 8)", "`nodes: 1` with `gpus: 2`"),
    (job(roles=(role(nodes=4, gpus=1),)), machine(H100, T4), "4 GPUs", "`nodes: 2` with `gpus: 1` each"),
    (job(roles=(role(gpus=Gpus(count=1, type="B200")),)), machine(H100, T4), "B200", "type"),
    (job(roles=(role(nodes=3, cpus=4.0),)), machine(), "12 CPUs over 3 nodes and there are 8", "`cpus: 2.66`"),
    (
        job(roles=(role(nodes=2, memory=9 * GiB),)),
        machine(),
        "18Gi of memory over 2 nodes and there are 16Gi",
        "`memory: 8192Mi`",
    ),
    (job(roles=(role(shm=2 * GiB),)), machine(), "2Gi of shm", "`shm: 1024Mi`"),
    (job(roles=(role(disk=200 * GiB),)), machine(), "200Gi of disk", "`disk: 102400Mi`"),
    (job(data=(DataImport(url="s3://u:p@bucket/x", to="d"),)), machine(), "s3://bucket/x", "secrets"),
    (job(data=(DataImport(url="s3://bucket/x/", to="d", sha256="0" * 64),)), machine(), "s3://bucket/x/", "one object"),
]


@pytest.mark.parametrize(
    ("impossible", "here", "reason", "hint"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_can_never_run(impossible: Job, here: LocalMachine, reason: str, hint: str) -> None:
    with pytest.raises(Refused) as refusal:
        check(impossible, here)
    assert reason in refusal.value.message
    assert hint in (refusal.value.hint or "")


def test_enough_gpus_of_which_too_few_will_do() -> None:
    """Two are there and two are asked for, but only one is an H100."""
    with pytest.raises(Refused) as refusal:
        check(job(roles=(role(gpus=Gpus(count=2, type="H100")),)), machine(H100, T4))
    assert "H100" in refusal.value.message


def test_an_image_is_told_not_refused() -> None:
    given: Any = role()
    with_image = job(roles=(type(given)(name="worker", run="true", image="torch:2"),))
    assert "torch:2" in check(with_image, machine())[0]
    assert "(no podman here)" in check(with_image, machine(), (), ContainerChoice(why_not="no podman here"))[0]
    assert check(with_image, machine(), (), ContainerChoice(program="podman")) == []


def test_gpus_in_containers_need_a_cdi_specification() -> None:
    worker = Role(name="worker", run="true", image="torch:2", resources=Resources(gpus=Gpus(count=1)))
    real, stated = machine(gpu("GPU-1", 0), gpu("GPU-2", 1)), machine(Gpu(id="a", index=0, is_stated=True))
    without = ContainerChoice(program="podman", devices=frozenset({"nvidia.com/gpu=0", "nvidia.com/gpu=all"}))
    with pytest.raises(Refused) as refusal:
        check(job(roles=(worker,)), real, (), without)
    assert "CDI" in refusal.value.message and "nvidia-ctk cdi generate" in (refusal.value.hint or "")
    both = msgspec.structs.replace(without, devices=frozenset({"nvidia.com/gpu=0", "nvidia.com/gpu=GPU-2"}))
    assert check(job(roles=(worker,)), real, (), both) == []
    assert check(job(roles=(worker,)), stated, (), without) == []
    assert len(check(job(roles=(worker,)), real, (), ContainerChoice(why_not="off"))) == 1


def crowd(nodes: int, procs: int) -> Job:
    return job(roles=(msgspec.structs.replace(role(nodes=nodes), procs=procs),))


def test_many_ranks_on_few_cpus_are_told_before_they_start() -> None:
    assert check(crowd(8, 8), machine()) == []
    assert check(crowd(13, 5), machine()) == ["65 ranks share 8 CPUs here"]
    told = check(crowd(1000, 8), machine())
    assert told == ["8,000 ranks share 8 CPUs here, and starting them takes about 34s"]
