"""A trainer that writes as fast as it can, followed by an attached run: no line is lost, without any storage."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import IMAGE

LONGBOAT = Path(sys.executable).parent / "longboat"
RANKS, WIDTH = 2, 80
LINES = [80_000, pytest.param(250_000, marks=pytest.mark.soak), pytest.param(500_000, marks=pytest.mark.soak)]
"""Of each rank, 50 MB and 100 MB in all: the kubelet keeps 10 MiB, and looks for what to rotate every 10 s."""
MEMORY = 150 << 20
"""What an attached command may use at its peak, however long the log is."""
TRAINER = f"""
import os, sys, time
rank = os.environ["RANK"]
for first in range(0, int(os.environ["LINES"]), 1000):
    text = "".join("%s %07d %s\\n" % (rank, at, "x" * {WIDTH}) for at in range(first, first + 1000))
    sys.stdout.write(text)
sys.stdout.flush()
if rank == "0":
    open("written", "w").close()
while not os.path.exists("written"):  # the end of rank 1 is the end of the run
    time.sleep(0.02)
sys.exit(3 if rank == "1" else 0)
"""


def peak_memory(process: subprocess.Popen[bytes]) -> int:
    """Wait for its end; the most memory that it held. Its rusage has that of the process that made it, too."""
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, ValueError):  # it ends in this moment
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]) << 10 if "VmHWM:" in status else 0)
        time.sleep(0.05)
    return peak


@pytest.mark.pods
@pytest.mark.parametrize("count", LINES)
def test_a_fast_log_is_complete_and_in_order(cluster: Cluster, namespace: str, tmp_path: Path, count: int) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(f"kubernetes: {{image: '{IMAGE}'}}\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAINER)
    environment = {**os.environ, "LONGBOAT_HOME": str(tmp_path / "home"), "KUBECONFIG": str(cluster.kubeconfig)}
    options = ["--engine", "kubernetes", "--namespace", namespace, "--procs", str(RANKS), "--env", f"LINES={count}"]
    command = [str(LONGBOAT), "run", *options, "--", "python", "train.py"]
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        process = subprocess.Popen(command, cwd=tmp_path / "code", env=environment, stdout=out, stderr=err)
        peak = peak_memory(process)
    messages = (tmp_path / "err").read_text(errors="replace")
    seen = dict.fromkeys(range(RANKS), 0)
    with open(tmp_path / "out", "rb") as lines:
        for line in lines:
            prefix, _, text = line.partition(b"| ")
            rank, number, filling = text.split()
            assert prefix.decode().strip().endswith(f"/{int(rank)}")
            assert int(number) == seen[int(rank)], (
                f"line {seen[int(rank)]} of rank {int(rank)} is missing: {messages[-2000:]}"
            )
            assert filling == b"x" * WIDTH
            seen[int(rank)] += 1
    assert seen == dict.fromkeys(range(RANKS), count), messages[-2000:]
    assert process.returncode == 3, messages[-2000:]
    assert "rotated away" not in messages
    assert 0 < peak < MEMORY
    print("peak", peak >> 20, "MiB")
