"""Hung ranks: stall.json, the stacks of every rank, the odd one out."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.launcher.nodes import Node

Make = Callable[..., Node]

HANG = """
import os, sys, threading, time
if "import" in sys.argv:
    import longboat
rank = int(os.environ["RANK"])
def all_reduce():
    print("up", flush=True); time.sleep(1000)
def load_batch():
    print("up", flush=True); time.sleep(1000)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
load_batch() if rank == 2 else all_reduce()
"""
MESSAGE = "odd one out: rank 2 in load_batch (train.py:9); ranks 0, 1, 3 in all_reduce (train.py:7)"


def until_all_are_up(node: Node, procs: int) -> None:
    for rank in range(procs):
        node.until_log("up", f"{rank}.out")


def test_sigusr1_takes_the_stacks_of_every_rank(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=4)
    node.script(HANG)
    node.start()
    until_all_are_up(node, 4)
    node.signal(signal.SIGUSR1)
    assert node.wait() == 210
    assert node.outcome["cause"] == "hang"
    assert node.outcome["ended_by"] == "hang"
    assert node.outcome["message"] == MESSAGE
    for rank in range(4):
        report = node.report(rank)
        assert report["ended_by"] == "hang"
        assert ("load_batch" if rank == 2 else "all_reduce") in report["stacks"]
        assert report["stacks"].count("hread 0x") == 2


def test_ranks_that_imported_longboat_print_and_live_on(make_node: Make) -> None:
    node = make_node("python train.py import; true", procs=3)
    node.script(HANG)
    node.start()
    until_all_are_up(node, 3)
    node.signal(signal.SIGUSR1)
    assert node.wait() == 210
    assert "odd one out: rank 2 in load_batch" in node.outcome["message"]
    assert b"Fatal Python error" not in node.log("0.err")
    assert node.report(1)["stacks"].startswith("Thread 0x")


def test_a_silent_rank_is_noticed_and_dumped_without_an_engine(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=3, stall_s=0.5)
    node.script(HANG)
    assert node.run() == 210
    stall = node.json("stall.json")
    assert stall["silent_s"] >= 0.5
    assert stall["rank"] in (0, 1, 2)
    assert "made no progress" in node.outcome["message"]
    assert "rank 2 in load_batch" in node.outcome["message"]


def test_output_and_steps_are_progress(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=2, stall_s=1.5)
    node.script(
        "import os, time, longboat\nlongboat._WRITE_S = 0.1\n"
        "for n in range(10):\n"
        "    print(n, flush=True) if os.environ['RANK'] == '0' else longboat.step(n)\n    time.sleep(0.4)\n"
    )
    assert node.run() == 0
    assert not node.has("stall.json")


def test_a_stopped_process_and_a_shell_without_python(make_node: Make) -> None:
    node = make_node("if [ $RANK = 0 ]; then echo up; exec sleep 1000; fi; exec python train.py", procs=2, grace_s=1)
    node.script("import os, signal\nprint('up', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\n")
    node.start()
    until_all_are_up(node, 2)
    node.signal(signal.SIGUSR1)
    assert node.wait() == 210
    assert node.report(0)["stacks"] == ""
    assert "stopped" in node.report(1)["stacks"]
    assert "train.py" in node.report(1)["stacks"]


def test_children_of_a_rank_are_asked_too(make_node: Make) -> None:
    node = make_node(["python", "train.py"])
    node.script(
        "import multiprocessing, time\n"
        "def produce():\n    print('up', flush=True)\n    time.sleep(1000)\n"
        "child = multiprocessing.get_context('fork').Process(target=produce)\nchild.start()\nchild.join()\n"
    )
    node.start()
    node.until_log("up")
    node.signal(signal.SIGUSR1)
    assert node.wait() == 210
    first, _, second = node.report()["stacks"].partition("# process ")
    assert "produce" not in first and "join" in first
    assert "produce" in second


SLOW = """
import multiprocessing, os, signal, sys, time
def dump(number, frame):
    if number == signal.SIGUSR1:  # as the kernel does while a handler of C runs
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("Fatal Python error: Aborted" if number == signal.SIGABRT else "Thread 0x1 (most recent call first):",
          file=sys.stderr, flush=True)
    time.sleep(0.8)
    print("Current thread 0x2 (most recent call first):", file=sys.stderr)
    print('  File "train.py", line 1 in parent', file=sys.stderr, flush=True)
    if number == signal.SIGABRT:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
def produce():
    print("up", flush=True); time.sleep(1000)
child = multiprocessing.get_context("fork").Process(target=produce)
child.start()
number = getattr(signal, sys.argv[1])
signal.signal(number, dump)
if number == signal.SIGUSR1:
    with open(os.path.join(os.environ["LONGBOAT_NODE_DIR"], "steps", "0.usr1"), "w") as file:
        file.write("%d" % os.getpid())
print("listens", flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("asked_by", ["SIGABRT", "SIGUSR1"])
def test_a_process_that_rests_between_two_lines_is_waited_for(make_node: Make, asked_by: str) -> None:
    node = make_node(["python", "train.py", asked_by], grace_s=1)
    node.script(SLOW)
    node.start()
    node.until_log("up")
    node.until_log("listens")
    node.signal(signal.SIGUSR1)
    assert node.wait() == 210
    first, _, second = node.report()["stacks"].partition("# process ")
    assert "in parent" in first and "produce" not in first
    assert "in parent" not in second and "produce" in second
