"""SkyPilot and dstack files: what is translated, what is listed as lost, and that no secret is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import JobError
from longboat.core.jobs import Gpus, Job, Retries, Secret, Volume
from longboat.specs.importers.registry import Imported, import_text
from longboat.specs.read import read_job

SKY = """
name: My Task
workdir: ~/code
num_nodes: 4
resources:
  infra: aws
  accelerators: {H100: 8}
  cpus: 4+
  memory: 32+
  disk_size: 256
  image_id: docker:nvcr.io/nvidia/pytorch:24.10-py3
  use_spot: true
  labels: {my-label: my-value}
  job_recovery: {strategy: x, max_restarts_on_errors: 3, recover_on_exit_codes: [33, 0]}
envs:
  MODEL: 13b
  WANDB_API_KEY:
  HF_TOKEN: hf_abcdefghijklmnop123
  LR: 1e-3
  LATER: ${MODEL}
secrets: {A: null, B: topsecret}
file_mounts:
  /remote/path: /local/path
  /ckpt: {source: s3://b, mode: MOUNT}
  /data: s3://bucket/x
volumes: {/mnt/v: vol}
setup: pip install -r requirements.txt
run: |
  set -e
  torchrun --nnodes=$SKYPILOT_NUM_NODES train.py ${MODEL}
"""
DSTACK = """
type: task
name: train-distrib
nodes: 2
python: 3.12
env:
  - NCCL_DEBUG=INFO
  - HF_TOKEN
  - X=${{ secrets.foo }}
commands:
  - pip install -r requirements.txt
  - torchrun --nproc-per-node=$DSTACK_GPUS_PER_NODE train.py
resources:
  gpu: A100,H100:40GB..80GB:4..8
  cpu: 8..
  memory: 64GB..
  shm_size: 16GB
  disk: 200GB..
volumes: ["vol:/data", {instance_path: /mnt/x, path: /cache}]
repos: ["."]
retry: {on_events: [interruption, no-capacity], duration: 4h}
max_duration: 3d
stop_duration: 5m
ports: [8080]
zap: 1
"""


def load(text: str, tmp_path: Path) -> tuple[Imported, Job]:
    imported = import_text(text, file="their.yaml")
    file = tmp_path / "job.yaml"
    file.write_text(imported.text, encoding="utf-8")
    return imported, read_job([file], environment={}).job


def lost(imported: Imported) -> set[str]:
    return {each.split(": ")[0] for each in imported.untranslated}


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


@pytest.mark.parametrize("text", [SKY, DSTACK])
def test_what_is_lost_stands_in_the_file_as_comments(text: str) -> None:
    imported = import_text(text, file="their.yaml")
    for each in imported.untranslated:
        assert f"# - {each}\n" in imported.text


def test_no_secret_is_copied() -> None:
    text = import_text(SKY, file="their.yaml").text
    assert "hf_abc" not in text and "topsecret" not in text


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


@pytest.mark.parametrize(
    ("gpu", "gpus"),
    [
        ("2", Gpus(count=2)),
        ("24GB", Gpus(count=1, memory=24 * 2**30)),
        ("nvidia:H100:8", Gpus(count=8, type="H100")),
        ("{name: [H100], count: 2..4, memory: 80GB..}", Gpus(count=2, type="H100", memory=80 * 2**30)),
        ("{name: L4, count: {min: 2, max: 3}}", Gpus(count=2, type="L4")),
        ("0", Gpus()),
    ],
)
def test_dstack_gpus(gpu: str, gpus: Gpus, tmp_path: Path) -> None:
    _, job = load(f"type: task\ncommands: [x]\nresources: {{gpu: {gpu}}}", tmp_path)
    assert job.roles[0].resources.gpus == gpus


def test_a_task_without_a_command_says_so(tmp_path: Path) -> None:
    imported, job = load("type: task\nimage: x/y", tmp_path)
    assert "run" in lost(imported) and "exit 1" in job.roles[0].run


def test_skypilot_without_workdir_sends_no_code(tmp_path: Path) -> None:
    assert load("run: x\nnum_nodes: 1", tmp_path)[1].workdir is None


def test_what_does_not_fit_is_lost_with_the_reason(tmp_path: Path) -> None:
    imported, job = load("run: x\nnum_nodes: 0\nenvs: {A-B: c}\nresources: {cpus: many, memory: 4x}", tmp_path)
    assert lost(imported) == {"num_nodes", "envs.A-B", "resources.cpus", "resources.memory"}
    assert job.nodes == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("type: service\nport: 1", "of type service; only tasks"),
        ("type: dev-environment", "only tasks"),
        ("a: 1", "neither a SkyPilot task"),
        ("run: x\nnodes: 2", "already"),
        ("- a", "which is a mapping"),
        ("", "which is a mapping"),
        ("run: [", "not valid YAML"),
        ("run: a\nrun: b", "written twice"),
        ("name: pipeline\n---\nrun: a\n---\nname: last\nrun: b", "the file has 2 tasks: 1, last"),
        ("name: pipeline\n---\nname: only", "the file has 0 tasks"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(JobError, match=says):
        import_text(text, file="their.yaml")
