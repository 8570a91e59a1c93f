"""`longboat doctor --cluster` of a cluster of this machine alone, which is broken in namespaces of its own.

What test hosts cannot be without, as systemd and control groups of version 2, can be taken from a process and what it
starts. `timedatectl` is a stand-in: whether the kernel's clock is synchronized is one setting for the whole machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# No systemd, control groups as version 1 has them, a kernel and a list of packages without what flannel needs; a clock
# that nobody synchronizes, and a processor of 32 bits, as the kernel says to those who ask so.
BREAK = """set -e
for folder in /run /sys/fs/cgroup /sys/module /lib/modules /var/lib/dpkg; do
    [ ! -d $folder ] || mount -t tmpfs tmpfs $folder
done
[ ! -e /proc/config.gz ] || mount --bind /dev/null /proc/config.gz
exec setarch linux32 "$@"
"""
FILE = "name: desk\nkind: local\nnetwork: flannel\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for mounts")
def test_a_host_without_what_a_cluster_needs(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    (tmp_path / "timedatectl").write_text('#!/bin/sh\n[ "$3" = CanNTP ] && echo yes || echo no\n')
    (tmp_path / "timedatectl").chmod(0o755)
    namespaces = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc"]
    doctor = [sys.executable, "-m", "longboat", "doctor", "--cluster", "cluster.yaml", "-o", "json"]
    variables = {"HOME": str(tmp_path), "LONGBOAT_HOME": str(tmp_path / "home")}
    environment = {**variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*namespaces, "sh", "-c", BREAK, "sh", *doctor], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 205, done.stderr
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    wanted = {
        "host systemd": ("broken", "systemd does not run here; process 1 is "),
        "host architecture": ("broken", "there are programs for amd64 and arm64"),
        "host cgroup": ("broken", "control groups are of version 1"),
        "host vxlan": ("broken", "the kernel has no vxlan"),
        "host ntp": ("warning", "clocks that nobody synchronizes: desk"),
    }
    seen = {name: (findings[name]["status"], text in findings[name]["detail"]) for name, (_, text) in wanted.items()}
    assert seen == {name: (status, True) for name, (status, _) in wanted.items()}, [findings[name] for name in wanted]
    assert "nft is missing" in findings["host vxlan"]["detail"]
    assert all(findings[name]["hint"] for name in wanted)
