"""Gangs of real launchers on this machine: they come up together, govern themselves, and end together."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launcher.nodes import LAUNCHER
from tests.launcher.pods import SLEEP, STOPPABLE, Pods, free_port
from tests.launcher.test_zipapp import interpreters

Make = Callable[..., Pods]


def test_a_single_node_needs_no_socket(make_pods: Make) -> None:
    pods = make_pods(script="print('hi')", line={"port": 1})  # nobody may listen there
    assert pods.run() == [0]
    assert pods.verdict == {
        "exit_code": 0,
        "cause": None,
        "message": "",
        "node": "",
        "first": None,
        "reason": "success",
    }
    assert pods.message()["ranks"] == [[0, 0, None, None]]
    assert pods.message()["lines"] == {"0.out": 1}


def test_all_start_together_and_all_succeed(make_pods: Make) -> None:
    """No rank starts before the last node is ready."""
    script = "import os; print(sorted(os.listdir(os.environ['SHARED'])))"
    pods = make_pods(
        script=script, roles={"worker": 3}, plan={"setup": 'touch "$SHARED/ready-$NODE_RANK"; sleep 0.$NODE_RANK'}
    )
    for place in (2, 0, 1):
        pods.start(place)
    assert [pods.wait(place) for place in range(3)] == [0, 0, 0]
    for place in range(3):
        assert all(f"ready-{n}" in pods.log(place, f"{place}.out") for n in range(3))
    assert pods.verdict["exit_code"] == 0 and pods.verdict["cause"] is None
    assert pods.message(1)["gang"] is None


def test_the_first_failure_ends_all_and_is_the_verdict(make_pods: Make) -> None:
    script = """
import os, signal, sys, time
def path(rank):
    return os.path.join(os.environ['SHARED'], 'up-%s' % rank)
if os.environ['RANK'] == '2':
    while not all(os.path.exists(path(rank)) for rank in (0, 1)):
        time.sleep(0.01)
    raise ValueError('of rank 2')
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
open(path(os.environ['RANK']), 'w').close()
time.sleep(600)
"""
    pods = make_pods(script=script, roles={"worker": 3})
    assert pods.run()[2] == 1
    verdict = pods.verdict
    assert (verdict["cause"], verdict["exit_code"], verdict["node"]) == ("exception", 1, "worker-2")
    assert verdict["message"] == "ValueError: of rank 2" and verdict["first"]["rank"] == 2
    assert "ValueError" in verdict["first"]["traceback"]
    for place in (0, 1):
        assert pods.report(place, place)["ended_by"] == "failure"
        assert pods.message(place)["ended_by"] == "failure"


def test_the_order_of_arrival_decides_and_no_clock(make_pods: Make) -> None:
    """Rank 1 fails because rank 2 did, with a clock (and so a report) that says it was first."""
    script = """
import os, time
path = os.path.join(os.environ['SHARED'], 'failed')
if os.environ['RANK'] == '2':
    open(path, 'w').close()
    os._exit(7)
while not os.path.exists(path) or not os.path.exists(path + '-known'):
    time.sleep(0.01)
os._exit(8)
"""
    pods = make_pods(script=script, roles={"worker": 3}, plan={"grace_s": 60})
    pods.start_all()
    pods.until(lambda: (pods.node(2) / "rank-2.json").exists())
    (pods.folder / "failed-known").touch()
    assert pods.wait(2) == 7
    pods.wait(0)
    assert (pods.verdict["exit_code"], pods.verdict["node"]) == (7, "worker-2")


def test_deciding_roles_end_the_others(make_pods: Make) -> None:
    script = """
import os, time
while not all(os.path.exists(os.path.join(os.environ['SHARED'], 'ps-%d' % n)) for n in range(2)):
    time.sleep(0.01)
"""
    pods = make_pods(
        script=script,
        roles={"ps": 2, "worker": 2},
        commands={"ps": 'touch "$SHARED/ps-$NODE_RANK"; exec sleep 600'},
        deciding=["worker"],
    )
    assert pods.run() == [0, 0, 0, 0]
    assert (pods.verdict["exit_code"], pods.verdict["cause"], pods.verdict["reason"]) == (0, None, "success")
    assert pods.report(0, 0)["ended_by"] == "success"
    assert pods.survivors() == []


def test_timeout(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 2}, timeout_s=1.0)
    pods.run()
    assert (pods.verdict["cause"], pods.verdict["exit_code"]) == ("timeout", 207)
    assert pods.message(1)["ended_by"] == "timeout"


def test_a_setup_that_fails_on_one_node(make_pods: Make) -> None:
    """The others are there: one that comes after node 0 has given its verdict is taken away by the engine."""
    wait = 'until test -e "$SHARED/others-wait"; do sleep 0.02; done'
    setup = f"echo trying; test $NODE_RANK != 1 || {{ {wait}; exit 5; }}"
    pods = make_pods(script=SLEEP, roles={"worker": 3}, plan={"setup": setup})
    pods.start_all()
    pods.until(lambda: pods.beat(0).get("missing") == ["worker-1"])
    (pods.folder / "others-wait").touch()
    codes = [pods.wait(place) for place in range(3)]
    assert codes[1] == 5 and codes[2] == 0
    assert (pods.verdict["cause"], pods.verdict["exit_code"], pods.verdict["node"]) == ("setup", 209, "worker-1")
    assert pods.verdict["message"].startswith("node worker-1: setup failed: exit code 5")
    assert pods.message(1)["tail"] == ["trying"]
    assert pods.log(0, "0.out") == ""


@pytest.mark.parametrize("place", [0, 1])
def test_stop_reaches_all(make_pods: Make, place: int) -> None:
    pods = make_pods(script=STOPPABLE, roles={"worker": 3})
    pods.start_all()
    pods.until_said("up")
    assert pods.tell(place, "stop") == 0
    assert [pods.wait(each) for each in range(3)] == [0, 3, 0]
    assert (pods.verdict["cause"], pods.verdict["exit_code"], pods.verdict["reason"]) == (None, 3, "stop")
    assert all(pods.message(each)["ended_by"] == "stop" for each in range(3))
    pods.until_said("leaves")


def test_stop_with_its_own_grace_and_then_less(make_pods: Make) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    pods = make_pods(script=script, roles={"worker": 2}, plan={"grace_s": 600})
    pods.start_all()
    pods.until_said("up")
    assert pods.tell(0, "stop") == 0
    pods.until(lambda: (pods.node(1) / "stop").exists())
    assert pods.tell(0, "stop", "0.5") == 0
    assert [pods.wait(each) for each in range(2)] == [137, 137]
    assert pods.verdict["exit_code"] == 137 and pods.verdict["cause"] is None


def test_stop_after_node_0_has_done_its_part(make_pods: Make) -> None:
    script = "import os, time\nif os.environ['RANK'] == '0': raise SystemExit\n" + SLEEP
    pods = make_pods(script=script, roles={"worker": 2})
    pods.start_all()
    pods.until_said("up", [1])
    pods.until(lambda: (pods.node(0) / "outcome.json").exists())
    assert pods.tell(0, "stop") == 0
    assert [pods.wait(0), pods.wait(1)] == [0, 143]
    assert pods.message(0)["ended_by"] == "stop" and pods.verdict["exit_code"] == 143


def test_every_python_in_one_gang(make_pods: Make) -> None:
    pythons = interpreters()
    script = (
        "import sys, time; time.sleep(0.1); print(sys.version_info[0]); sys.exit(3 if sys.version_info < (3, 9) else 0)"
    )
    pods = make_pods(["python3", "train.py"], script=script, roles={"worker": len(pythons)})
    for place, python in enumerate(pythons):
        pods.start(place, python=python, env={"PATH": f"{os.path.dirname(python)}:{os.environ['PATH']}"})
    codes = [pods.wait(place) for place in range(len(pythons))]
    assert pods.verdict["exit_code"] == (3 if 3 in codes else 0)
    assert not any("Traceback" in pods.stderr(place) for place in range(len(pythons)))


def test_a_slow_setup_is_waited_for(make_pods: Make) -> None:
    """A node that is there but not ready is no missing peer."""
    pods = make_pods(
        script="print('ran')",
        roles={"worker": 2},
        plan={"setup": "test $NODE_RANK = 0 || while ! test -e $SHARED/enough; do sleep 0.05; done"},
        line={"timeout_s": 1},
    )
    pods.start_all()
    pods.until(
        lambda: pods.json(0, "beat.json")["missing"] == ["worker-1"] if (pods.node(0) / "beat.json").exists() else None
    )
    time.sleep(2.5)
    assert pods.processes[0].poll() is None
    (pods.folder / "enough").touch()
    assert [pods.wait(0), pods.wait(1)] == [0, 0]


HANGS = """
import os, time
def load_batch():
    while True: time.sleep(0.1)
def all_reduce():
    while True: time.sleep(0.1)
print('up', flush=True)
load_batch() if os.environ['RANK'] == '2' else all_reduce()
"""


@pytest.mark.parametrize("how", ["stall", "told"])
def test_hang_names_the_odd_one_out_of_all_nodes(make_pods: Make, how: str) -> None:
    pods = make_pods(script=HANGS, roles={"worker": 4}, plan={"stall_s": 8.0 if how == "stall" else None, "grace_s": 5})
    pods.start_all()
    pods.until_said("up")
    if how == "told":
        assert pods.tell(0, "dump") == 0
    assert [pods.wait(place) for place in range(4)] == [210] * 4
    verdict = pods.verdict
    assert (verdict["cause"], verdict["exit_code"], verdict["node"]) == ("hang", 210, "worker-2")
    assert "odd one out: rank 2 in load_batch" in verdict["message"]
    assert "load_batch" in pods.report(2, 2)["stacks"]


def test_mpirun_and_its_followers(make_pods: Make) -> None:
    """What stands for mpirun starts a command on every node; when it succeeds, the followers are told so."""
    call = '$OMPI_MCA_plm_rsh_agent $host "echo on \\$NODE_RANK; cat train.py"'
    start = f"for host in worker-0 worker-1 worker-2; do {call}; done"
    pods = make_pods(start, script="code", roles={"worker": 3}, plan={"mpi": {"port": free_port("127.0.0.3")}})
    for place, node in enumerate(pods.gang["nodes"]):
        node["starter"] = "mpirun" if place == 0 else "follower"
    assert pods.run() == [0, 0, 0], [pods.message(place) for place in range(3)]
    assert pods.log(0, "0.out") == "on 0\ncodeon 1\ncodeon 2\ncode"
    assert (pods.verdict["exit_code"], pods.verdict["reason"]) == (0, "success")


def test_mpirun_fails(make_pods: Make) -> None:
    pods = make_pods("exit 9", roles={"worker": 2}, plan={"mpi": {"port": free_port("127.0.0.3")}})
    for place, node in enumerate(pods.gang["nodes"]):
        node["starter"] = "mpirun" if place == 0 else "follower"
    assert pods.run()[0] == 9
    assert (pods.verdict["exit_code"], pods.verdict["node"]) == (9, "worker-0")
    assert pods.message(1)["ended_by"] == "failure"


def test_a_port_that_is_taken(make_pods: Make) -> None:
    """The launcher itself cannot go on: that is told all the same."""
    pods = make_pods(script=SLEEP, roles={"worker": 2})
    with socket.create_server(("", pods.gang["line"]["port"])):
        pods.start(0)
        assert pods.wait(0) == 205
    message = pods.message()
    assert (message["cause"], message["exit_code"]) == ("lost", 205) and "port" in message["message"]


def test_a_launcher_with_a_bug_tells_the_others(make_pods: Make, tmp_path: Path) -> None:
    """A node whose launcher collapses is a failure of the gang, at once and not as a silence."""
    broken = tmp_path / "launcher"
    shutil.copytree(LAUNCHER.parent, broken / "launcher")
    for name in ("core", "bundles", "storage"):
        shutil.copytree(LAUNCHER.parents[1] / name, broken / name)
    gang = broken / "launcher" / "ranks" / "rank_group.py"
    gang.write_text(
        gang.read_text().replace("    def start(self) -> None:", "    def start(self) -> None:\n        1 / 0", 1)
    )
    pods = make_pods(script=SLEEP, roles={"worker": 2}, line={"lost_s": 600})
    pods.start(0)
    pods.start(1, launcher=broken / "launcher" / "__main__.py")
    assert pods.wait(1) == 200
    assert pods.wait(0) == 143
    assert "ZeroDivisionError" in pods.message(1)["message"] and pods.message(1)["cause"] == "lost"
    assert (pods.verdict["cause"], pods.verdict["exit_code"], pods.verdict["node"]) == ("lost", 200, "worker-1")


def test_over_the_memory_limit(make_pods: Make) -> None:
    script = "import os, time\nx = b'x' * (400 << 20) if os.environ['RANK'] == '1' else 0\ntime.sleep(600)"
    pods = make_pods(script=script, roles={"worker": 2})
    pods.gang["roles"]["worker"]["memory_limit"] = 200 << 20
    pods.run()
    assert (pods.verdict["cause"], pods.verdict["exit_code"], pods.verdict["node"]) == ("oom", 137, "worker-1")
    assert pods.verdict["first"]["memory_limit"] == 200 << 20 and pods.verdict["first"]["memory_peak"] > 200 << 20


@pytest.mark.slow
def test_64_nodes_come_up(make_pods: Make) -> None:
    pods = make_pods("echo up", roles={"worker": 64})
    assert pods.run() == [0] * 64
    assert pods.verdict["exit_code"] == 0
    assert all(pods.log(place, f"{place}.out") == "up\n" for place in range(64))


def test_two_of_the_same_name(make_pods: Make) -> None:
    """A second launcher under a node's name is not taken for the first."""
    pods = make_pods(script=SLEEP, roles={"worker": 2}, line={"lost_s": 20})
    pods.start_all()
    pods.until_said("up")
    first = pods.processes[1]
    pods.folder.joinpath("pod-1").rename(pods.folder / "first-1")
    second = pods.start(1)
    assert second.wait(timeout=90) == 208
    assert pods.wait(0) == 143
    assert (pods.verdict["cause"], pods.verdict["node"]) == ("lost", "worker-1")
    first.kill()
    first.wait()


def test_nothing_is_left_behind(make_pods: Make) -> None:
    pods = make_pods("sleep 600 & echo up; exit 4", roles={"worker": 2})
    pods.run()
    assert pods.survivors() == []
    assert pods.verdict["exit_code"] == 4
