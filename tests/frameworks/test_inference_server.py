"""A checkpoint behind a real inference server that knows nothing of Longboat: ready only once the model is loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.frameworks.conftest import environment, longboat

EXAMPLE = Path(__file__).parents[2] / "examples" / "train-and-serve"


@pytest.mark.frameworks
def test_mlserver_serves_the_checkpoint(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = environment("mlserver")
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        done = longboat(*words, cwd=project)
        assert done.returncode == 0, done.stderr
        return done

    command("run", "-q", "job.yaml")
    ready = "/v2/models/digits/ready"
    start = ("--name", "digits-v2", "--ready", ready, "--no-golden", "-d", "--wait", "--", "sh", "v2/start.sh")
    try:
        command("serve", "digits-app", *start)
        [service] = json.loads(command("serve", "ls", "-o", "json").stdout)
        assert (service["name"], service["ready"]) == ("digits-v2", 2)
        with np.load(project / "digits.npz") as data:
            images, labels = data["images"][:200].reshape(200, 64), data["labels"][:200]
        given = {
            "name": "images",
            "shape": [200, 64],
            "datatype": "FP64",
            "data": images.astype(float).ravel().tolist(),
        }
        request = urllib.request.Request(
            f"{service['url']}/v2/models/digits/infer",
            data=json.dumps({"inputs": [given]}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            [output] = json.load(response)["outputs"]
        assert output["shape"] == [200, 10]
        answers = np.array(output["data"]).reshape(200, 10).argmax(axis=1)
        assert (answers == labels).mean() > 0.85
    finally:
        longboat("serve", "stop", "digits-v2", cwd=project)
        longboat("rm", "digits-app", "--force", "--yes", cwd=project)
