"""dstack task files: what each field becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.jobs import Gpus, Retries, Secret, Volume
from tests.specs.importers.samples import DSTACK, load, lost


def test_dstack(tmp_path: Path) -> None:
    imported, job = load(DSTACK, tmp_path)
    role = job.roles[0]
    assert imported.source == "dstack" and job.aliases == ("dstack",)
    assert (job.name, job.workdir, role.nodes, role.procs) == ("train-distrib", ".", 2, 4)
    assert role.run == (
        "set -e\npip install -r requirements.txt\ntorchrun --nproc-per-node=$DSTACK_GPUS_PER_NODE train.py"
    )
    assert role.resources.gpus == Gpus(count=4, type="A100", memory=40 * 2**30)
    assert (role.resources.cpus, role.resources.memory, role.resources.shm, role.resources.disk) == (
        8.0,
        64 * 2**30,
        16 * 2**30,
        200 * 2**30,
    )
    assert role.env == {"NCCL_DEBUG": "INFO"}
    assert job.secrets == (Secret(name="HF_TOKEN"), Secret(name="X", store="foo"))
    assert job.volumes == (Volume(target="/data", claim="vol"), Volume(target="/cache", path="/mnt/x"))
    assert job.retries == Retries(count=3, on=("preemption", "lost"))
    assert (job.timeout_s, job.grace_s) == (3 * 86400.0, 300.0)
    assert lost(imported) == {"python", "resources.gpu", "retry", "retry.on_events", "ports", "zap"}


@pytest.mark.parametrize(
    ("gpu", "gpus"),
    [
        ("2", Gpus(count=2)),
        ("24GB", Gpus(count=1, memory=24 * 2**30)),
        ("nvidia:H100:8", Gpus(count=8, type="H100")),
        ("{name: [H100], count: 2..4, memory: 80GB..}", Gpus(count=2, type="H100", memory=80 * 2**30)),
        ("{name: L4, count: {min: 2, max: 3}}", Gpus(count=2, type="L4")),
        ("0", Gpus()),
        ('{name: L4, count: "\u00b2..3"}', Gpus(count=1, type="L4")),
    ],
)
def test_dstack_gpus(gpu: str, gpus: Gpus, tmp_path: Path) -> None:
    _, job = load(f"type: task\ncommands: [x]\nresources: {{gpu: {gpu}}}", tmp_path)
    assert job.roles[0].resources.gpus == gpus


def test_a_task_without_a_command_says_so(tmp_path: Path) -> None:
    imported, job = load("type: task\nimage: x/y", tmp_path)
    assert "run" in lost(imported) and "exit 1" in job.roles[0].run
