"""`longboat run --dry-run -o yaml | kubectl apply -f -` runs by itself to the end, and holds no secret."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import IMAGE

pytestmark = pytest.mark.pods

CANARY = "canary-5e1f"
SCRIPT = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "knows", len(os.environ["TOKEN"]))
"""


@pytest.fixture
def printed(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[subprocess.CompletedProcess[str]]:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(json.dumps({"kubernetes": {"image": IMAGE}}))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    job = {"name": "alone", "run": "python train.py", "nodes": 2, "cpus": 0.05, "secrets": ["TOKEN"], "retries": 1}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    environment = {
        **os.environ,
        "LONGBOAT_HOME": str(tmp_path / "home"),
        "KUBECONFIG": str(cluster.kubeconfig),
        "TOKEN": CANARY,
    }
    command = [sys.executable, "-m", "longboat", "run", "--namespace", namespace, "--dry-run", "-o", "yaml", "job.yaml"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    yield done


def decoded(text: str) -> Iterator[bytes]:
    """The text, and what its Secrets hold."""
    yield text.encode()
    for body in yaml.safe_load_all(text):
        for value in (body.get("data") or {}).values():
            data = base64.b64decode(value)
            yield gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_applied_by_hand_it_runs_to_the_end(printed: subprocess.CompletedProcess[str], kubectl: Kubectl) -> None:
    assert not any(CANARY.encode() in text for text in decoded(printed.stdout))
    assert CANARY not in printed.stderr
    assert "Secret alone-env with TOKEN is left out" in printed.stderr
    kubectl("create", "secret", "generic", "alone-env", "--from-literal=TOKEN=12345")
    kubectl("apply", "-f", "-", text=printed.stdout)
    kubectl("apply", "-f", "-", text=printed.stdout)
    kubectl("wait", "--for=condition=complete", "job/alone-a0-worker", "--timeout=110s")
    log = kubectl("logs", "-l", "longboat.dev/run=alone", "--tail=-1")
    assert "rank 0 of 2 knows 5" in log and "rank 1 of 2 knows 5" in log


def test_nothing_waits_for_longboat(printed: subprocess.CompletedProcess[str]) -> None:
    bodies = list(yaml.safe_load_all(printed.stdout))
    kinds = [body["kind"] for body in bodies]
    assert "ConfigMap" not in kinds and kinds[-1] == "Job" and kinds.count("Secret") == 3
    assert not bodies[-1]["spec"].get("suspend")
    assert not any("ownerReferences" in body["metadata"] for body in bodies)
