"""The command: what it prints and where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import binaries

ROOT = Path(__file__).resolve().parents[2]


def testbed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


testbed.__test__ = False  # type: ignore[attr-defined]


def test_mistakes_are_one_line(state: Path) -> None:
    for arguments, told in (
        (["kubeconfig", "--name", "nosuch"], "there is no cluster 'nosuch'"),
        (["up", "--name", "A"], "is no cluster name"),
        (["up", "--nodes", "4:nosuch"], "no shape 'nosuch'"),
        (["build", "nosuch"], "no target nosuch"),
    ):
        done = testbed(*arguments)
        assert done.returncode == 1
        assert told in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_down_and_clean_of_nothing_succeed(state: Path) -> None:
    assert testbed("down").returncode == 0
    assert testbed("status").stdout == ""
    assert not state.exists()


@pytest.mark.cluster
@pytest.mark.usefixtures("needs_cluster")
def test_from_up_to_down(state: Path) -> None:
    up = testbed("up", "--nodes", "2:l4x1")
    assert up.returncode == 0, up.stderr
    kubeconfig = up.stdout.strip()
    assert testbed("kubeconfig").stdout.strip() == kubeconfig
    kubectl = binaries.find(["kubernetes"])["kubectl"]
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    nodes = subprocess.run([kubectl, "get", "nodes", "-o", "name"], env=environment, capture_output=True, text=True)
    assert nodes.stdout.split() == ["node/l4x1-0", "node/l4x1-1"], nodes.stderr
    assert testbed("kubectl", "--", "get", "nodes", "-o", "name").stdout == nodes.stdout
    status = testbed("status").stdout
    assert status.startswith("dev\tready\tapi,gpu\thttps://127.0.0.1:")
    assert "ended" not in status
    assert testbed("down").returncode == 0
    assert not state.exists()
