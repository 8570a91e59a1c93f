"""Constructs of task files as people write them, one in each line: what becomes of it, and what is said to be lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import JobError
from longboat.specs.dump import job_to_mapping
from longboat.specs.importers.registry import import_text
from longboat.specs.read import read_job

SKYPILOT: list[tuple[str, dict[str, Any], set[str]]] = [
    ("resources: {accelerators: H100}", {"gpus": "H100:1"}, set()),
    ("resources: {accelerators: 'H100:8'}", {"gpus": "H100:8"}, set()),
    ("resources: {accelerators: {H100: 8}}", {"gpus": "H100:8"}, set()),
    ("resources: {accelerators: {H100:8}}", {"gpus": "H100:8"}, set()),
    ("resources: {accelerators: {H100:8, H200:8}}", {"gpus": "H100:8"}, {"resources.accelerators"}),
    ("resources: {accelerators: {L4:1, A10g:1, A100:1}}", {"gpus": "L4:1"}, {"resources.accelerators"}),
    ("resources:\n  accelerators:\n    ? A100:4\n    ? H100:4\n", {"gpus": "A100:4"}, {"resources.accelerators"}),
    ("resources: {accelerators: ['A100:2', 'H100:2']}", {"gpus": "A100:2"}, {"resources.accelerators"}),
    ("resources: {accelerators: 'A100-80GB:8'}", {"gpus": "A100-80GB:8"}, set()),
    ("resources: {accelerators: 'L4:0.5'}", {"gpus": "L4:1"}, {"resources.accelerators"}),
    ("resources: {accelerators: tpu-v4-8}", {"gpus": None}, {"resources.accelerators"}),
    ("resources: {accelerators: null}", {"gpus": None}, set()),
    ("resources: {cpus: 8+, memory: 64+, disk_size: 512}", {"cpus": 8.0, "memory": "64Gi", "disk": "512Gi"}, set()),
    ("resources: {cpus: 4}", {"cpus": 4.0}, set()),
    ("resources: {memory: 64GB}", {"memory": "64Gi"}, set()),
    ("resources: {memory: 0.5TB}", {"memory": "512Gi"}, set()),
    ("resources: {cpus: many}", {"cpus": None}, {"resources.cpus"}),
    ("resources: {image_id: 'docker:ubuntu:22.04'}", {"image": "ubuntu:22.04"}, set()),
    ("resources: {image_id: ami-0123}", {"image": None}, {"resources.image_id"}),
    (
        "envs: {TAG: '24.10'}\nresources: {image_id: 'docker:reg.example/torch:${TAG}'}",
        {"image": "reg.example/torch:24.10"},
        set(),
    ),
    (
        "resources: {infra: k8s, use_spot: true, disk_tier: best, ports: 8888}",
        {"gpus": None},
        {"resources.infra", "resources.use_spot", "resources.disk_tier", "resources.ports"},
    ),
    ("resources: {any_of: [{cloud: aws}, {cloud: gcp}]}", {}, {"resources.any_of"}),
    ("resources: {ordered: [{cloud: aws}]}", {}, {"resources.ordered"}),
    ("resources: {autostop: 10}", {}, {"resources.autostop"}),
    ("resources: {surprise: 1}", {}, {"resources.surprise"}),
    ("resources: {job_recovery: FAILOVER}", {"retries": None}, {"resources.job_recovery"}),
    ("resources: {job_recovery: {max_restarts_on_errors: 3}}", {"retries": {"count": 3}}, set()),
    ("resources: {job_recovery: {recover_on_exit_codes: [33, 34]}}", {"retries": {"count": 3, "on": [33, 34]}}, set()),
    ("resources: {job_recovery: {recover_on_exit_codes: 7}}", {"retries": {"count": 3, "on": [7]}}, set()),
    ("resources: {priority: 100}", {"priority": 100}, set()),
    ("resources: {labels: {team: vision}}", {"labels": {"team": "vision"}}, set()),
    ("num_nodes: 4", {"nodes": 4}, set()),
    ("num_nodes: many", {"nodes": 1}, {"num_nodes"}),
    ("name: Llama 3.1 Finetune!", {"name": "llama-3-1-finetune"}, {"name"}),
    ("workdir: .", {"workdir": None}, set()),
    ("workdir: ./code", {"workdir": "./code"}, set()),
    ("workdir: {url: 'https://example.org/x.git', ref: main}", {"workdir": None}, {"workdir"}),
    ("envs: {SUB: src}\nworkdir: ./${SUB}", {"workdir": "./src"}, set()),
    ("envs: {LR: 1e-3, FLAG: true, PORT: 08}", {"env": {"LR": "1e-3", "FLAG": "true", "PORT": "08"}}, set()),
    ("envs: {A: x, B: '${A}/y'}", {"env": {"A": "x", "B": "$${A}/y"}}, set()),
    ("envs: {WANDB_API_KEY: }", {"secrets": ["WANDB_API_KEY"]}, set()),
    ("envs: {HF_TOKEN: hf_abcdefghijklmnop123}", {"secrets": ["HF_TOKEN"]}, {"envs.HF_TOKEN"}),
    ("secrets: {KEY: null}", {"secrets": ["KEY"]}, set()),
    ("secrets: {KEY: abc}", {"secrets": ["KEY"]}, {"secrets.KEY"}),
    (
        "file_mounts: {/data: s3://bucket}",
        {"data": [("s3://bucket/", "/data")], "volumes": {"/data": {"scratch": True}}},
        set(),
    ),
    ("file_mounts: {/data: s3://bucket/sets/imagenet}", {"data": [("s3://bucket/sets/imagenet/", "/data")]}, set()),
    ("file_mounts: {/data: s3://bucket/x.tar}", {"data": [("s3://bucket/x.tar", "/data")]}, set()),
    ("file_mounts: {/data: gs://bucket/v1/}", {"data": [("gs://bucket/v1/", "/data")]}, set()),
    ("file_mounts: {/d: 'https://example.org/set'}", {"data": [("https://example.org/set", "/d")]}, set()),
    ("file_mounts: {/data: {source: s3://b/x, mode: COPY}}", {"data": [("s3://b/x/", "/data")]}, set()),
    ("file_mounts: {/ckpt: {source: s3://b, mode: MOUNT}}", {"data": None}, {"file_mounts./ckpt"}),
    ("file_mounts: {/ckpt: {source: s3://b, mode: MOUNT_CACHED}}", {"data": None}, {"file_mounts./ckpt"}),
    ("file_mounts: {/ckpt: {name: mine, store: s3}}", {"data": None}, {"file_mounts./ckpt"}),
    ("envs: {B: mine}\nfile_mounts: {/data: 's3://${B}/x'}", {"data": [("s3://mine/x/", "/data")]}, set()),
    ("envs: {B: mine}\nfile_mounts: {/data: s3://$B}", {"data": [("s3://mine/", "/data")]}, set()),
    ("envs: {B: }\nfile_mounts: {/data: 's3://${B}/x'}", {"data": None}, {"file_mounts./data"}),
    ("file_mounts: {/data: 's3://${NOWHERE}/x'}", {"data": None}, {"file_mounts./data"}),
    ("envs: {D: /data}\nfile_mounts: {'${D}/a': s3://b/}", {"data": [("s3://b/", "/data/a")]}, set()),
    (
        "envs: {API_TOKEN: abc}\nfile_mounts: {/d: 's3://${API_TOKEN}/x'}",
        {"data": None},
        {"envs.API_TOKEN", "file_mounts./d"},
    ),
    ("file_mounts: {/cfg: /home/me/cfg}", {"volumes": {"/cfg": {"path": "/home/me/cfg", "read_only": True}}}, set()),
    ("volumes: {/mnt/d: claim}", {"volumes": {"/mnt/d": {"claim": "claim"}}}, set()),
    ("volumes: {/mnt/d: {name: claim}}", {"volumes": {"/mnt/d": {"claim": "claim"}}}, set()),
    ("storage_mounts: {/x: s3://b}", {}, {"storage_mounts"}),
    ("service: {replicas: 2}", {}, {"service"}),
    ("config: {docker: {}}", {}, {"config"}),
    ("nonsense: 1", {}, {"nonsense"}),
    ("setup: pip install x", {"setup": "pip install x"}, set()),
    ("setup: |\n  source activate x\n", {"setup": "bash -c 'source activate x'"}, set()),
]
DSTACK: list[tuple[str, dict[str, Any], set[str]]] = [
    ("commands: [python train.py]", {"run": "python train.py"}, set()),
    ("commands: [a, b]", {"run": "set -e\na\nb"}, set()),
    ("commands: ['python t.py ${{ run.args }}']", {"run": 'python t.py "$@"'}, set()),
    ("commands: ['a', 'b ${{run.args}} c']", {"run": 'set -e\na\nb "$@" c'}, set()),
    (
        "commands: ['source x && t ${{ run.args }}']",
        {"run": ["bash", "-c", 'source x && t "$@"', "bash"]},
        set(),
    ),
    ("""commands: ['sh -c "t ${{ run.args }}"']""", {"run": 'sh -c "t "'}, {"commands"}),
    ("setup: ['t ${{ run.args }}']", {"setup": "t"}, {"setup"}),
    (
        "commands: ['login ${{ secrets.hub }} x']",
        {"run": "login ${hub} x", "secrets": {"hub": {"store": "hub"}}},
        set(),
    ),
    ("commands: ['echo ${{ what.ever }}!']", {"run": "echo !"}, {"commands"}),
    ("env: [A=1, B]", {"env": {"A": "1"}, "secrets": ["B"]}, set()),
    ("env: {A: 1}", {"env": {"A": "1"}}, set()),
    ("env: {A: 'x${{ secrets.b }}'}", {"env": None}, {"env.A"}),
    ("resources: {gpu: 2}", {"gpus": 2}, set()),
    ("resources: {gpu: 'H100:4'}", {"gpus": "H100:4"}, set()),
    ("resources: {gpu: 24GB}", {"gpus": {"count": 1, "memory": "24Gi"}}, set()),
    ("resources: {gpu: 24GB..}", {"gpus": {"count": 1, "memory": "24Gi"}}, set()),
    ("resources: {gpu: 24GB..80GB}", {"gpus": {"count": 1, "memory": "24Gi"}}, {"resources.gpu"}),
    ("resources: {gpu: '..80GB'}", {"gpus": 1}, {"resources.gpu"}),
    ("resources: {gpu: {memory: 24GB..80GB}}", {"gpus": {"count": 1, "memory": "24Gi"}}, {"resources.gpu"}),
    ("resources: {gpu: {memory: {min: 24GB, max: 80GB}}}", {"gpus": {"count": 1, "memory": "24Gi"}}, {"resources.gpu"}),
    ("resources: {gpu: 'A100:80GB:8'}", {"gpus": {"count": 8, "type": "A100", "memory": "80Gi"}}, set()),
    ("resources: {gpu: {name: [H100, H200], count: 8}}", {"gpus": "H100:8"}, {"resources.gpu"}),
    ("resources: {gpu: {vendor: amd, count: 1}}", {"gpus": 1}, {"resources.gpu.vendor"}),
    ("resources: {gpu: 0}", {"gpus": None}, set()),
    ("resources: {cpu: 8.., memory: 32GB..64GB}", {"cpus": 8.0, "memory": "32Gi"}, set()),
    ("resources: {shm_size: 8GB, disk: {size: 100GB..}}", {"shm": "8Gi", "disk": "100Gi"}, set()),
    ("nodes: 2", {"nodes": 2}, set()),
    ("volumes: ['data:/data']", {"volumes": {"/data": {"claim": "data"}}}, set()),
    ("max_duration: 2w", {"timeout": "14d"}, set()),
    ("max_duration: off", {"timeout": None}, set()),
    ("retry: true", {"retries": {"count": 3}}, {"retry"}),
    ("python: '3.12'\nports: [8080]", {}, {"python", "ports"}),
]


def shown(text: str, folder: Path) -> tuple[dict[str, Any], set[str]]:
    """The job as a mapping, and which fields are said to be lost."""
    imported = import_text(text, file="their.yaml")
    (folder / "job.yaml").write_text(imported.text, encoding="utf-8")
    job = read_job([folder / "job.yaml"], environment={}).job
    fields = job_to_mapping(job)
    fields["data"] = [(item.url, item.to) for item in job.data] or None
    return fields, {line.partition(": ")[0] for line in imported.untranslated}


@pytest.mark.parametrize(("text", "fields", "lost"), SKYPILOT, ids=[case[0][:60] for case in SKYPILOT])
def test_skypilot(text: str, fields: dict[str, Any], lost: set[str], tmp_path: Path) -> None:
    job, said = shown(f"{text}\nrun: python train.py\n", tmp_path)
    assert {name: job.get(name) for name in fields} == fields
    assert said == lost


@pytest.mark.parametrize(("text", "fields", "lost"), DSTACK, ids=[case[0][:60] for case in DSTACK])
def test_dstack(text: str, fields: dict[str, Any], lost: set[str], tmp_path: Path) -> None:
    command = "" if "commands" in text else "commands: [python train.py]\n"
    job, said = shown(f"type: task\n{text}\n{command}", tmp_path)
    assert {name: job.get(name) for name in fields} == fields
    assert said == lost


def test_a_long_script_is_readable() -> None:
    script = "".join(f"  \tpython step{number}.py \\\n    --flag   \n" for number in range(20))
    text = import_text(f"run: |\n  source env.sh\n{script}", file="their.yaml").text
    assert "run:\n- bash\n- -c\n- |-\n  source env.sh\n" in text
    assert "\\n" not in text and "\\t" not in text


def test_a_here_document_keeps_its_tabs(tmp_path: Path) -> None:
    job, _ = shown('run: "cat <<-END\\n\\tx\\n\\tEND"', tmp_path)
    assert job["run"] == "cat <<-END\n\tx\n\tEND"


PIPELINE = "name: pipeline\n---\nname: prepare\nrun: echo a\n---\nname: train\nnum_nodes: 2\nrun: echo b\n"


@pytest.mark.parametrize(("task", "name"), [("train", "train"), ("1", "prepare"), ("2", "train")])
def test_one_task_of_a_pipeline(task: str, name: str) -> None:
    assert f"\nname: {name}\n" in import_text(PIPELINE, file="their.yaml", task=task).text


def test_a_pipeline_asks_which() -> None:
    with pytest.raises(JobError, match="the file has 2 tasks: prepare, train"):
        import_text(PIPELINE, file="their.yaml")
    with pytest.raises(JobError, match="there is no task last"):
        import_text(PIPELINE, file="their.yaml", task="last")
    with pytest.raises(JobError, match="their.yaml:5:"):
        import_text("name: a\nrun: x\n---\nname: b\nrun: x: y\n", file="their.yaml", task="a")
