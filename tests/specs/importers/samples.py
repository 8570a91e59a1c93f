"""Task files of other tools, and how the tests import them."""

from __future__ import annotations

from pathlib import Path

from longboat.core.jobs import Job
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
