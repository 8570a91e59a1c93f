"""SkyPilot task files: what each field becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.jobs import Gpus, Retries, Volume
from tests.specs.importers.samples import SKY, load, lost


def test_skypilot(tmp_path: Path) -> None:
    imported, job = load(SKY, tmp_path)
    role = job.roles[0]
    assert imported.source == "skypilot" and job.aliases == ("skypilot",)
    assert (job.name, job.workdir, role.nodes, role.procs) == ("my-task", "~/code", 4, 8)
    assert role.resources.gpus == Gpus(count=8, type="H100")
    assert (role.resources.cpus, role.resources.memory, role.resources.disk) == (4.0, 32 * 2**30, 256 * 2**30)
    assert role.image == "nvcr.io/nvidia/pytorch:24.10-py3" and job.setup == "pip install -r requirements.txt"
    assert role.env == {"MODEL": "13b", "LR": "1e-3", "LATER": "${MODEL}"}
    assert {secret.name for secret in job.secrets} == {"WANDB_API_KEY", "HF_TOKEN", "A", "B"}
    assert role.run == "set -e\ntorchrun --nnodes=$SKYPILOT_NUM_NODES train.py ${MODEL}"
    assert job.retries == Retries(count=3, on=(33,)) and job.labels == {"my-label": "my-value"}
    assert [(data.url, data.to) for data in job.data] == [("s3://bucket/x/", "/data")]
    assert set(job.volumes) == {
        Volume(target="/remote/path", path="/local/path", read_only=True),
        Volume(target="/data", scratch=True),
        Volume(target="/mnt/v", claim="vol"),
    }
    assert lost(imported) == {
        "name",
        "resources.infra",
        "resources.use_spot",
        "resources.job_recovery.strategy",
        "envs.HF_TOKEN",
        "secrets.B",
        "file_mounts./ckpt",
    }


def test_bash_scripts_stay_bash(tmp_path: Path) -> None:
    _, job = load("run: |\n  source env.sh\n  python x.py\nsetup: '[[ -f x ]] || exit 1'", tmp_path)
    assert job.roles[0].run == ("bash", "-c", "source env.sh\npython x.py")
    assert job.setup == "bash -c '[[ -f x ]] || exit 1'"


@pytest.mark.parametrize(
    ("accelerators", "gpus", "is_lost"),
    [
        ("H100", Gpus(count=1, type="H100"), False),
        ("A100-80GB:4", Gpus(count=4, type="A100-80GB"), False),
        ("[H100:8, A100:8]", Gpus(count=8, type="H100"), True),
        ("{V100: 1, T4: 2}", Gpus(count=1, type="V100"), True),
        ("A100:0.5", Gpus(count=1, type="A100"), True),
        ("tpu-v2-8", Gpus(), True),
    ],
)
def test_accelerators(accelerators: str, gpus: Gpus, is_lost: bool, tmp_path: Path) -> None:
    imported, job = load(f"run: x\nresources: {{accelerators: {accelerators}}}", tmp_path)
    assert job.roles[0].resources.gpus == gpus
    assert ("resources.accelerators" in lost(imported)) == is_lost


def test_skypilot_without_workdir_sends_no_code(tmp_path: Path) -> None:
    assert load("run: x\nnum_nodes: 1", tmp_path)[1].workdir is None
