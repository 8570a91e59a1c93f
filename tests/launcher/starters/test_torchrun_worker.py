"""torchrun's workers behind the stand-in. A small program plays torchrun: it reads PET_*, starts `$PYTHON_EXEC`
workers, ends the others when one fails, and flattens every exit code to 1.
"""

from __future__ import annotations

import os
import signal
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launcher.nodes import Node

Make = Callable[..., Node]

TORCHRUN = """#!{python}
import os, signal, subprocess, sys, time
procs = int(os.environ["PET_NPROC_PER_NODE"])
limit = int(os.environ.get("PET_MAX_RESTARTS", "0"))
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))

def start(count):
    workers = []
    for local in range(procs):
        env = dict(os.environ, RANK=str(4 + local), LOCAL_RANK=str(local), WORLD_SIZE="8",
                   TORCHELASTIC_RESTART_COUNT=str(count), TORCHELASTIC_MAX_RESTARTS=str(limit))
        command = [os.environ.get("PYTHON_EXEC", sys.executable), "-u"] + sys.argv[1:]
        workers.append(subprocess.Popen(command, env=env, start_new_session=True))
    return workers

print("torchrun starts", flush=True)
restarts = 0
workers = start(restarts)
while True:
    time.sleep(0.02)
    codes = [worker.poll() for worker in workers]
    if stopped or any(codes):
        for worker in workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGTERM)
        for worker in workers:
            worker.wait()
        if not stopped and restarts < limit:
            restarts += 1
            workers = start(restarts)
            continue
        print("torchrun failed", file=sys.stderr, flush=True)
        if os.environ.get("BARRIER"):
            time.sleep(1000)
        sys.exit(1)
    if all(code == 0 for code in codes):
        sys.exit(0)
"""


def torchrun_node(make_node: Make, script: str, *, python: str = sys.executable, **keys: object) -> Node:
    env = {"PET_NPROC_PER_NODE": "3", **dict(keys.pop("env", {}))}  # type: ignore[call-overload]
    node = make_node("torchrun train.py", procs=3, first_rank=4, starter="torchrun", env=env, **keys)
    for rank in node.plan["ranks"]:
        rank["env"] = {}
    tools = node.folder / "bin dir"
    tools.mkdir()
    (tools / "torchrun").write_text(TORCHRUN.format(python=python))
    (tools / "torchrun").chmod(0o755)
    node.plan["path_prepend"] = [str(tools)]
    node.script(script)
    return node


def test_every_worker_has_its_own_log(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import os, sys\nenv = os.environ\n"
        "print('worker', env['RANK'], env['LONGBOAT_RANK'], 'PYTHON_EXEC' in env)\n"
        "print('err', os.environ['RANK'], file=sys.stderr)\n",
    )
    assert node.run() == 0
    assert set(node.log("4.out").splitlines()) == {b"torchrun starts", b"worker 4 4 False"}
    for rank in (5, 6):
        assert node.log(f"{rank}.out") == b"worker %d %d False\n" % (rank, rank)
        assert node.log(f"{rank}.err") == b"err %d\n" % rank
        assert node.report(rank)["exit_code"] == 0
    assert node.json("workers/5.json")["exit_code"] == 0


def test_the_true_exit_code_of_the_first_worker_that_failed(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import os, sys, time\n"
        "if os.environ['RANK'] == '5':\n    print('seven', file=sys.stderr)\n    sys.exit(7)\n"
        "time.sleep(1000)\n",
    )
    assert node.run() == 7
    assert node.outcome["first"]["rank"] == 5
    assert node.outcome["message"] == "exit code 7: seven"
    assert node.report(5)["ended_by"] is None
    assert node.report(4)["ended_by"] == "failure"
    assert b"torchrun failed" in node.log("4.err")
    assert node.survivors() == []


def test_a_worker_killed_by_a_signal(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import os, time\nif os.environ['RANK'] == '6': os.kill(os.getpid(), 11)\ntime.sleep(1000)\n",
    )
    assert node.run() == 139
    assert node.outcome["first"]["signal"] == 11
    assert node.report(6)["cause"] == "signal"


def test_torchrun_that_waits_at_its_barrier_is_ended(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import os, time\nif os.environ['RANK'] == '4': raise KeyError('k')\ntime.sleep(1000)\n",
        env={"BARRIER": "1"},
        grace_s=0.5,
    )
    node.start()
    node.until(lambda: node.has("rank-4.json"))
    assert node.wait() == 1
    assert node.outcome["cause"] == "exception"
    assert node.outcome["message"] == "KeyError: 'k'"


def test_restarts_of_torchrun_are_not_the_end(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import os, sys, time\n"
        "print('try', os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "if os.environ['RANK'] == '5' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(9)\n"
        "time.sleep(0.3)\n",
        env={"PET_MAX_RESTARTS": "1"},
    )
    assert node.run() == 0
    assert node.log("5.out") == b"try 0\ntry 1\n"
    assert node.report(5)["exit_code"] == 0


def test_stop_reaches_the_workers_through_torchrun(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import signal, sys, time\n"
        "got = []\nsignal.signal(signal.SIGTERM, lambda *_: got.append(1))\nprint('up')\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.2)\nprint('saved', len(got))\n",
    )
    node.start()
    for rank in (4, 5, 6):
        node.until_log("up", f"{rank}.out")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    for rank in (5, 6):
        assert node.log(f"{rank}.out") == b"up\nsaved 1\n"
        assert node.report(rank)["ended_by"] == "stop"
        assert node.report(rank)["exit_code"] == 0


def test_a_killed_stand_in_takes_its_worker_along(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import os, signal, time\nprint('up')\n"
        "if os.environ['RANK'] == '5':\n    time.sleep(0.3)\n    os.kill(os.getppid(), signal.SIGKILL)\n"
        "time.sleep(1000)\n",
    )
    assert node.run() != 0
    assert node.survivors() == []


def test_stacks_of_workers(make_node: Make) -> None:
    node = torchrun_node(
        make_node,
        "import os, time\n"
        "def wait(): print('up'); time.sleep(1000)\ndef odd(): print('up'); time.sleep(1000)\n"
        "odd() if os.environ['RANK'] == '6' else wait()\n",
        grace_s=2,
    )
    node.start()
    for rank in (4, 5, 6):
        node.until_log("up", f"{rank}.out")
    node.signal(signal.SIGUSR1)
    assert node.wait() == 210
    assert "odd one out: rank 6 in odd (train.py:3)" in node.outcome["message"]
    assert "wait" in node.report(5)["stacks"]


def test_the_interpreter_is_the_one_torchrun_runs_under(make_node: Make, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    node = torchrun_node(make_node, "import sys\nprint(sys.executable, sys.prefix)\n", python=python)
    assert node.run() == 0
    assert node.log("5.out").decode().split() == [python, str(tmp_path / "venv")]


def test_the_users_own_interpreter_is_kept(make_node: Make, tmp_path: Path) -> None:
    own = tmp_path / "my python"
    own.write_text(f'#!/bin/sh\necho through mine\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    node = torchrun_node(make_node, "import os\nprint(os.environ['PYTHON_EXEC'])\n", env={"PYTHON_EXEC": str(own)})
    assert node.run() == 0
    assert node.log("5.out").decode().splitlines() == ["through mine", str(own)]


@pytest.mark.parametrize("text", ["exit 5", "no-such-torchrun"])
def test_a_starter_that_fails_before_any_worker(make_node: Make, text: str) -> None:
    node = make_node(text, procs=2, starter="torchrun")
    assert node.run() == (5 if text == "exit 5" else 127)
    assert node.outcome["first"]["rank"] == 0
    assert node.report(1)["ended_by"] == "failure"


def test_outside_of_workers_the_stand_in_is_just_python(make_node: Make) -> None:
    node = make_node("$PYTHON_EXEC -c 'print(6 * 7)'", procs=2, starter="torchrun")
    for rank in node.plan["ranks"]:
        rank["env"] = {}
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    assert node.run(env=environment) == 0
    assert node.log() == b"42\n"
