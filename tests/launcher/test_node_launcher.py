"""The life of a node: signals, the lifeline, the grace, and that nothing survives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.launcher.nodes import LAUNCHER, Node

Make = Callable[..., Node]

TRAPS = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"
IGNORES = "trap '' TERM; echo up; while :; do sleep 0.05; done"
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in (0, 1, 2):
            os.close(fd)
        with open("daemon", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists("daemon"):
    time.sleep(0.01)
print("up", flush=True)
"""


def test_runs_every_rank_and_returns_zero(make_node: Make) -> None:
    node = make_node("echo out $RANK; echo err $RANK >&2", procs=3)
    assert node.run() == 0
    assert node.outcome["exit_code"] == 0
    assert node.outcome["ended_by"] is None
    assert node.outcome["first"] is None
    for rank in range(3):
        assert node.log(f"{rank}.out") == b"out %d\n" % rank
        assert node.log(f"{rank}.err") == b"err %d\n" % rank
        assert node.report(rank)["exit_code"] == 0
        assert node.report(rank)["ended_by"] is None
    assert node.json("ready.json")["address"] == "127.0.0.1"
    assert not node.has("stop")


def test_launcher_json_names_the_process(make_node: Make) -> None:
    node = make_node("sleep 1000")
    process = node.start()
    node.until(lambda: node.has("launcher.json"))
    told = node.json("launcher.json")
    assert told["pid"] == process.pid
    with open(f"/proc/{process.pid}/stat") as file:
        assert told["start_ticks"] == int(file.read().rpartition(") ")[2].split()[19])
    assert len(told["boot_id"]) == 36
    node.signal(signal.SIGTERM)
    node.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_gives_the_grace(make_node: Make, number: int) -> None:
    node = make_node(TRAPS, procs=2)
    node.start()
    node.until_log("up", "0.out")
    node.until_log("up", "1.out")
    node.signal(number)
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert node.has("stop")
    assert node.outcome["ended_by"] == "stop"
    assert node.outcome["cause"] is None
    assert b"asked" in node.log()
    assert node.report(1)["ended_by"] == "stop"


def test_after_the_grace_everything_is_killed(make_node: Make) -> None:
    node = make_node(IGNORES, grace_s=0.5)
    node.start()
    node.until_log("up")
    node.signal(signal.SIGTERM)
    assert node.wait() == 137
    assert node.report()["signal"] == 9
    assert node.report()["ended_by"] == "stop"
    assert node.outcome["first"] is None


def test_a_stopped_rank_ends_too(make_node: Make) -> None:
    node = make_node("echo up; kill -STOP $$; sleep 1000")
    node.start()
    node.until_log("up")
    pid = node.until(lambda: node.json("beat.json")["ranks"].get("0", {}).get("pid"))
    node.until(lambda: open(f"/proc/{pid}/stat").read().rpartition(") ")[2].startswith("T"))
    node.signal(signal.SIGTERM)
    assert node.wait() == 143


def test_a_child_that_saves_gets_the_grace_although_its_shell_is_gone(make_node: Make) -> None:
    node = make_node(["bash", "-c", "python train.py; true"])
    node.script(
        "import signal, sys, time\n"
        "def save(*_):\n    time.sleep(0.5)\n    print('saved', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('up', flush=True)\ntime.sleep(1000)\n"
    )
    node.start()
    node.until_log("up")
    node.signal(signal.SIGTERM)
    node.wait()
    assert node.log() == b"up\nsaved\n"


def test_double_forked_daemon_is_killed(make_node: Make) -> None:
    node = make_node(["python", "train.py"])
    node.script(DAEMON)
    assert node.run() == 0
    pid = int((node.work / "daemon").read_text())
    assert not os.path.exists(f"/proc/{pid}")
    assert node.survivors() == []


def test_daemon_that_ignores_sigterm_and_has_another_environment_is_killed(make_node: Make) -> None:
    inner = "trap '' TERM; echo $$ > daemon; while :; do sleep 0.05; done"
    node = make_node(
        f'(env -i /usr/bin/setsid /bin/sh -c "{inner.replace("$", chr(92) + "$")}" &) ; '
        "while [ ! -s daemon ]; do sleep 0.05; done; exit 3"
    )
    assert node.run() == 3
    assert not os.path.exists(f"/proc/{int((node.work / 'daemon').read_text())}")


def test_a_forking_tree_is_killed(make_node: Make) -> None:
    node = make_node(["python", "train.py"], grace_s=0.2)
    node.script(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True)\nend = time.time() + 30\n"
        "while time.time() < end:\n"
        "    if os.fork():\n        time.sleep(0.02)\n        os._exit(0)\n    os.setsid()\n"
    )
    # Each process lives a moment and hands over to its child: the first one is gone, the chain goes on.
    assert node.run() == 0
    assert node.survivors() == []


def test_lifeline_end_of_file_ends_the_ranks(make_node: Make) -> None:
    read_end, write_end = os.pipe()
    node = make_node("env | grep LIFELINE; ls -l /proc/self/fd >&2; " + TRAPS)
    node.start(env={"LONGBOAT_LIFELINE_FD": str(read_end)}, pass_fds=[read_end])
    os.close(read_end)
    node.until_log("up")
    os.close(write_end)
    assert node.wait() == 0
    assert node.outcome["ended_by"] == "lost"
    assert b"LIFELINE" not in node.log()
    assert len([line for line in node.log("0.err").splitlines() if b"pipe:" in line]) == 0


@pytest.mark.parametrize(("reason", "code"), [("success", 0), ("failure", 143), ("timeout", 143)])
def test_sigusr2_ends_for_the_reason_in_the_file(make_node: Make, reason: str, code: int) -> None:
    node = make_node("echo up; sleep 1000")
    node.start()
    node.until_log("up")
    (node.directory / "ending.json").write_text(json.dumps({"reason": reason, "grace_s": 5}))
    node.signal(signal.SIGUSR2)
    assert node.wait() == code
    assert node.outcome["ended_by"] == reason
    assert node.report()["ended_by"] == reason


def test_sigusr2_uses_the_grace_in_the_file(make_node: Make) -> None:
    node = make_node(IGNORES, grace_s=1000)
    node.start()
    node.until_log("up")
    (node.directory / "ending.json").write_text('{"reason": "failure", "grace_s": 0.1}')
    node.signal(signal.SIGUSR2)
    assert node.wait() == 137


def test_environment_promised_to_the_ranks(make_node: Make) -> None:
    node = make_node("env", env={"A": "1", "LR": "0.1"}, unset=["GONE"], resume_from="/c/step-3")
    assert node.run(env={"GONE": "x", "KEPT": "secret", "PYTHONUNBUFFERED": ""}) == 0
    env = dict(line.partition("=")[::2] for line in node.log().decode().splitlines())
    assert env["A"] == "1"
    assert env["KEPT"] == "secret"
    assert "GONE" not in env
    assert env["LONGBOAT_NODE_DIR"] == str(node.directory)
    assert env["LONGBOAT_CHECKPOINT_DIR"] == str(node.folder / "checkpoints")
    assert env["LONGBOAT_ARTIFACTS_DIR"] == str(node.folder / "artifacts")
    assert env["LONGBOAT_RESUME_FROM"] == "/c/step-3"
    assert env["TMPDIR"] == str(node.folder / "scratch")
    assert env["PYTHONFAULTHANDLER"] == "1"
    assert env["PYTHONUNBUFFERED"] == ""
    assert env["PYTHONPATH"].split(":")[-1] == str(node.directory / "python")
    assert env["PWD"] == str(node.work)


def test_each_rank_has_its_own_session(make_node: Make) -> None:
    node = make_node(["python", "-c", "import os; print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())"])
    assert node.run() == 0
    assert node.log() == b"True True\n"


def test_bad_plans_and_folders_are_told(make_node: Make) -> None:
    node = make_node("true", directory="/proc/nowhere")
    process = node.start(stderr=subprocess.PIPE)
    assert process.wait() == 205
    assert process.stderr is not None
    assert b"/proc/nowhere" in process.stderr.read()
    process.stderr.close()
    (node.folder / "plan.json").write_text('{"run": "x"}')
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCHER), str(node.folder / "plan.json")], capture_output=True
    )
    assert done.returncode == 200
    assert b"key 'uid' is missing" in done.stderr


def test_durations_do_not_follow_the_wall_clock(make_node: Make) -> None:
    node = make_node("true")
    before = time.monotonic_ns()
    assert node.run() == 0
    assert before < node.report()["ended_ns"] <= node.outcome["ended_ns"] < time.monotonic_ns()
