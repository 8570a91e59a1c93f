"""stdin of attached commands on a cluster, as a user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench

LONGBOAT = Path(sys.executable).parent / "longboat"
FAILS_ONCE = "import os, sys\nprint(repr(sys.stdin.read()))\nsys.exit(os.environ['LONGBOAT_ATTEMPT'] == '0')"
READS = "import sys\nprint('begun', flush=True)\nprint(repr(sys.stdin.read()))"


def command(bench: Bench, *words: str) -> list[str]:
    return [str(LONGBOAT), "run", "--engine", "kubernetes", "--namespace", bench.namespace, *words]


@pytest.mark.pods
def test_what_is_piped_in_is_read_once(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    bench = Bench(cluster, namespace, tmp_path)
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, **bench.environment}
    words = command(bench, "--retries", "1", "--", "python", "-c", FAILS_ONCE)
    text = "hi\n" + "x" * 200_000
    ended = subprocess.run(
        words, input=text, capture_output=True, text=True, env=environment, cwd=tmp_path / "empty", timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{text!r}\n''\n"
    assert ended.stderr.count("has an empty stdin") == 1
    bench.close()


@pytest.mark.pods
def test_a_command_that_was_killed_holds_up_no_rank(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    bench = Bench(cluster, namespace, tmp_path)
    (tmp_path / "empty").mkdir()
    words = command(bench, "--id", "reader", "--", "python", "-c", READS)
    environment = {**os.environ, **bench.environment}
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=tmp_path / "empty"
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"half")
    process.stdin.flush()
    assert process.stdout.readline() == b"begun\n"
    process.kill()
    process.communicate()
    assert bench.engine.wait("reader", timeout_s=300).phase == "succeeded"
    bench.close()
