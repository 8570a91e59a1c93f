"""Sharded checkpoints: all ranks write, the marker comes last, and there is a whole one or none."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longboat.launcher import sharding, trainer
from longboat.storage.checkpoints import complete_steps, prune
from tests.launcher.test_trainer import SOURCE

SAVE = """
import os, sys
import longboat

rank = longboat.rank()
def save(step, **more):
    with longboat.sharded_checkpoint(step, loss=0.5, **more) as folder:
        with open(os.path.join(folder, "part-%d" % rank), "w") as file:
            file.write("weights of %d" % rank)
        yield folder
"""


def ranks(folder: Path, script: str, count: int = 3, **variables: str) -> list[subprocess.Popen[str]]:
    processes = []
    for rank in range(count):
        own = {
            "LONGBOAT_CHECKPOINT_DIR": str(folder),
            "LONGBOAT_NODE": "worker-0",
            "LONGBOAT_LOCAL_RANK": str(rank),
            "LONGBOAT_RANK": str(rank),
            "WORLD_SIZE": str(count),
            "PYTHONPATH": str(SOURCE),
            **variables,
        }
        command = [sys.executable, "-c", SAVE + script]
        processes.append(subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return processes


def ends(processes: list[subprocess.Popen[str]]) -> tuple[list[int], str]:
    said = "".join(process.communicate()[1] for process in processes)
    return [process.returncode for process in processes], said


def test_all_ranks_write_one_checkpoint_the_same_step_again_too(tmp_path: Path) -> None:
    codes, said = ends(ranks(tmp_path, "for step in (1, 2, 2): list(save(step))"))
    assert codes == [0, 0, 0], said
    assert [step for step, _ in complete_steps(tmp_path)] == [1, 2]
    names = sorted(os.listdir(tmp_path / "step-2"))
    assert names == [".complete", "part-0", "part-1", "part-2"] and sorted(os.listdir(tmp_path)) == ["step-1", "step-2"]
    marker = json.loads((tmp_path / "step-2" / ".complete").read_text())
    assert marker["count"] == 3 and marker["metrics"] == {"loss": 0.5}
    assert marker["files"]["part-1"][0] == len("weights of 1")


def test_a_part_that_fails_leaves_none_and_the_error_goes_on(tmp_path: Path) -> None:
    codes, said = ends(ranks(tmp_path, "for folder in save(7):\n    if rank == 1: raise KeyError('disk')"))
    assert codes == [0, 1, 0]
    assert "no checkpoint of step 7: rank 1 did not write its part" in said
    assert os.listdir(tmp_path) == []


def test_a_killed_rank_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    processes = ranks(tmp_path, "for folder in save(3):\n    if rank == 2: os.kill(os.getpid(), 9)")
    assert processes[2].wait() == -9
    for process in processes[:2]:  # as the launcher ends the gang
        assert process.poll() is None
        process.kill()
    ends(processes)
    assert complete_steps(tmp_path) == [] and os.listdir(tmp_path) == [".step-3.a0.0.shards-1.tmp"]
    codes, said = ends(ranks(tmp_path, "list(save(4))", LONGBOAT_ATTEMPT="1"))
    assert codes == [0, 0, 0], said
    prune(tmp_path, 3, attempt=1)
    assert os.listdir(tmp_path) == ["step-4"]


def test_ranks_that_torchrun_started_again_do_not_count_with_the_parts_of_the_dead(tmp_path: Path) -> None:
    dead = ranks(tmp_path, "for folder in save(3):\n    if rank == 0: os.kill(os.getpid(), 9)", 2)
    assert dead[0].wait() == -9
    while not list(tmp_path.glob(".step-3.*/.done-1")):
        assert dead[1].poll() is None
        time.sleep(0.01)
    dead[1].kill()
    ends(dead)
    slow = "for folder in save(3):\n    if rank == 1: sys.stdin.read()"
    again = ranks(tmp_path, slow, 2, TORCHELASTIC_RESTART_COUNT="1")
    while not list(tmp_path.glob(".step-3.a0.1.*/.done-0")):
        assert again[0].poll() is None
        time.sleep(0.01)
    assert complete_steps(tmp_path) == []
    codes, said = ends(again[::-1])  # which closes the stdin of the slow one first
    assert codes == [0, 0], said
    assert [step for step, _ in complete_steps(tmp_path)] == [3]


def test_a_part_that_a_full_disk_did_not_take_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    given = {"LONGBOAT_CHECKPOINT_DIR": str(tmp_path), "LONGBOAT_NODE": "worker-0", "LONGBOAT_LOCAL_RANK": "1"}
    for name, value in {**given, "LONGBOAT_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trainer, "_sync", full)
    with sharding.sharded_checkpoint(5) as folder:
        (Path(folder) / "part-1").write_text("x")
    assert (Path(folder) / ".done-1.failed").exists()


def test_nodes_with_folders_of_their_own_are_told(tmp_path: Path) -> None:
    own = {"LONGBOAT_NODE_DIR": str(tmp_path), "LONGBOAT_NODES": "2"}
    (tmp_path / "steps").mkdir()
    codes, said = ends(ranks(tmp_path / "checkpoints", "list(save(1))", 1, **own))
    assert codes == [0] and "is a folder of this node alone, and all nodes write" in said
    assert os.listdir(tmp_path / "checkpoints") == []


def test_an_attempt_that_was_replaced_writes_none(tmp_path: Path) -> None:
    (tmp_path / ".attempt-1").write_text('{"attempt": 1, "accepted": []}')
    codes, said = ends(ranks(tmp_path, "list(save(1))", 1))
    assert codes == [0] and "attempt 2 of the run has started" in said
    assert os.listdir(tmp_path) == [".attempt-1"]


def test_a_rank_that_never_comes_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGBOAT_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setattr(sharding, "_PATIENCE_S", 0.05)
    with sharding.sharded_checkpoint(1, ranks=2):
        pass
    assert "only 1 of 2 ranks had written" in capsys.readouterr().err and os.listdir(tmp_path) == []
