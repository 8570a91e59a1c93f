"""`longboat doctor` on this machine where it is really broken: in a mount namespace of its own, which ends with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# A small disk, little shared memory, device files of GPUs that no driver has, no /proc; nothing on PATH.
BREAK = """set -e
mkdir "$1/dev"
mount -t tmpfs -o size=16M none "$1/dev"
cp -a /dev/null /dev/zero /dev/random /dev/urandom "$1/dev"
mkdir "$1/dev/shm"
mknod "$1/dev/nvidiactl" c 120 255
mknod "$1/dev/nvidia0" c 120 0
mount -t tmpfs -o size=64M none "$1/dev/shm"
mount -t tmpfs -o size=64M none "$1/home"
cp "$1/config.yaml" "$1/home"
mount --rbind "$1/dev" /dev
mount -t tmpfs none /proc
shift
exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for mounts")
def test_what_is_wrong_with_this_machine(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    settings = {"local": {"containers": "podman", "gpu_isolation": "off"}}
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BREAK, "sh", str(tmp_path)]
    doctor = ["env", f"PATH={tmp_path}", sys.executable, "-m", "longboat", "doctor", "-o", "json"]
    environment = {"LONGBOAT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([*command, *doctor], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 205, done.stderr
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    wanted = {
        "disk": ("broken", "free"),
        "shared memory": ("warning", "/dev/shm has 64Mi"),
        "gpus": ("broken", "1 device file of NVIDIA GPUs"),
        "gpu isolation": ("warning", "off"),
        "processes": ("warning", "no /proc"),
        "git": ("warning", "not found"),
        "trainer's python": ("warning", "no python on PATH"),
        "containers": ("broken", "podman"),
    }
    seen = {name: (found[name]["status"], words in found[name]["detail"]) for name, (_, words) in wanted.items()}
    assert seen == {name: (status, True) for name, (status, _) in wanted.items()}, [found[name] for name in wanted]
    assert all(found[name]["hint"] for name in wanted)


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    environment = {**os.environ, "LONGBOAT_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "longboat", "doctor", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 205 and found["home"]["status"] == "broken" and found["home"]["hint"]
