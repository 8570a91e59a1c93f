"""A sweep whose trials are runs of a cluster: the same command, the same record, pods instead of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import IMAGE

TRAIN = """
import os, sys
import longboat

longboat.step(1, loss=abs(float(sys.argv[1]) - 0.03))
assert longboat.params() == {"lr": float(os.environ["LONGBOAT_PARAM_LR"])}
"""


@pytest.mark.pods
def test_trials_are_runs_of_the_cluster(cluster: Cluster, namespace: str, home: Path, tmp_path: Path) -> None:
    (home / "config.yaml").write_text(f"kubernetes: {{image: '{IMAGE}'}}\n")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}

    def longboat(*words: str) -> str:
        command = [sys.executable, "-m", "longboat", *words]
        done = subprocess.run(
            command, cwd=code, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    place = ("--engine", "kubernetes", "--namespace", namespace, "--cpus", "0.1", "--memory", "64Mi")
    longboat("sweep", "-n", "tune", "-p", "lr=0.1,0.03", *place, "--", "python train.py ${sweep.lr}")
    status = json.loads(longboat("sweep", "status", "tune", "-o", "json"))
    assert (status["engine"], status["best"]["params"]) == ("kubernetes", {"lr": 0.03})
    assert [trial["phase"] for trial in status["trials"]] == ["succeeded", "succeeded"]
    assert len(longboat("ps", "-a", *place[:4], "-l", "sweep=tune", "-o", "name").splitlines()) == 2
    longboat("sweep", "rm", "tune")
    assert longboat("ps", "-a", *place[:4], "-o", "name") == ""
