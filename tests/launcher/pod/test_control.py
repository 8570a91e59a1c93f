"""`--tell` and `--status`, run beside a node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.nodes import LAUNCHER
from tests.launcher.pods import Pods

Make = Callable[..., Pods]


def beside(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def status(pods: Pods, place: int = 0) -> Any:
    done = beside("--status", pods.node(place))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_status_of_a_node_that_waits_runs_and_has_ended(make_pods: Make) -> None:
    script = """
import longboat, os, time
longboat.step(7, loss=0.25)
with longboat.checkpoint(7) as folder:
    pass
print('up', flush=True)
while not os.path.exists(os.environ['SHARED'] + '/end'):
    time.sleep(0.02)
raise SystemExit(6)
"""
    pods = make_pods(script=script, roles={"worker": 2})
    pods.start(0)
    pods.until(lambda: (pods.node(0) / "beat.json").exists() and status(pods)["phase"] == "waiting")
    assert status(pods)["missing"] == ["worker-1"] and status(pods)["ranks"] == {}
    pods.start(1)
    pods.until_said("up")
    pods.until(lambda: (status(pods)["ranks"].get("0") or {}).get("step") == 7)
    found = status(pods)
    assert (found["phase"], found["missing"], found["node"], found["attempt"]) == ("running", [], "worker-0", 0)
    assert found["checkpoint"] == str(pods.folder / "checkpoints" / "step-7") and found["beat_s"] >= 0
    rank = found["ranks"]["0"]
    assert rank["alive"] and rank["metrics"] == {"loss": 0.25} and rank["silent_s"] >= 0 and rank["exit_code"] is None
    assert found["outcome"] is None and found["reports"] == {}
    (pods.folder / "end").touch()
    pods.wait(0)
    found = status(pods)
    assert found["ranks"]["0"]["exit_code"] in (6, 143) and not found["ranks"]["0"]["alive"]
    assert found["reports"]["0"]["rank"] == 0 and found["outcome"]["exit_code"] and found["verdict"]["exit_code"] == 6


SAVES = """
import longboat, os, time
asked, said = 0, longboat.should_save()
print('up', said, flush=True)
while not longboat.should_stop():
    asked += longboat.should_save()
    if asked and not said:
        said = True
        print('asked', flush=True)
        with longboat.checkpoint(asked) as folder: pass
    time.sleep(0.01)
print('asked so often:', asked, flush=True)
"""


def test_every_rank_of_a_gang_is_asked_once_for_a_checkpoint(make_pods: Make) -> None:
    pods = make_pods(script=SAVES, roles={"worker": 2})
    pods.start_all()
    pods.until_said("up False")
    assert pods.tell(0, "save") == 0
    pods.until_said("asked")
    assert status(pods)["phase"] == "running", "nothing ends"
    pods.until(lambda: status(pods)["checkpoint"] == str(pods.folder / "checkpoints" / "step-1"))
    assert pods.tell(0, "stop") == 0
    for place in range(2):
        pods.wait(place)
        assert "asked so often: 1" in pods.log(place, f"{place}.out")
    assert pods.verdict["cause"] is None


def test_a_stop_without_a_running_launcher_is_not_found(make_pods: Make, tmp_path: Path) -> None:
    assert beside("--tell", tmp_path, "stop").returncode == 202
    pods = make_pods(script="pass")
    assert pods.run() == [0]
    done = beside("--tell", pods.node(0), "stop")
    assert done.returncode == 202 and "it has ended" in done.stderr


def test_another_process_under_the_same_number_is_left_alone(make_pods: Make, tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        (tmp_path / "launcher.json").write_text(json.dumps({"pid": bystander.pid, "start_ticks": 1}))
        assert beside("--tell", tmp_path, "stop").returncode == 202
        assert beside("--tell", tmp_path, "dump").returncode == 202
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    "words",
    [
        ("--tell",),
        ("--tell", "x"),
        ("--tell", "x", "go"),
        ("--tell", "x", "stop", "soon"),
        ("--tell", "x", "stop", "-1"),
        ("--tell", "x", "save", "now"),
    ]
    + [("--tell", "x", "stop", "1", "2"), ("--status",), ("--status", "x", "y")],
)
def test_usage(words: tuple[str, ...]) -> None:
    done = beside(*words)
    assert done.returncode == 201 and done.stderr.startswith("usage: ") and "Traceback" not in done.stderr


def test_the_status_of_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    done = beside("--status", tmp_path / "none")
    assert done.returncode == 205 and "Traceback" not in done.stderr
