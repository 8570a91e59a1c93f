"""The echo on the launcher's own stdout."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from longboat.engines.kubernetes.logs.lines import Parser
from tests.launcher.nodes import Node

Make = Callable[..., Node]


def echoed(node: Node) -> bytes:
    process = node.start(stdout=subprocess.PIPE)
    data, _ = process.communicate(timeout=60)
    return data


def test_lines_are_prefixed_and_whole(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=3, echo=True, setup="echo preparing")
    node.script(
        "import os, sys\nrank = os.environ['RANK']\n"
        "for number in range(2000):\n    os.write(1, b'a%d ' % number)\n    os.write(1, rank.encode() * 50 + b'\\n')\n"
        "os.write(2, b'no newline')\n"
    )
    lines = echoed(node).splitlines()
    assert b"[worker-0 setup] preparing" in lines
    for rank in range(3):
        prefix = b"[worker-0 rank %d] " % rank
        assert [line for line in lines if line.startswith(prefix + b"a")] == [
            prefix + b"a%d " % number + b"%d" % rank * 50 for number in range(2000)
        ]
        assert lines.count(prefix + b"no newline") == 1
    assert len(lines) == 3 * 2001 + 1
    assert node.log("0.out").count(b"\n") == 2000


def test_a_line_of_10_mb_is_one_line(make_node: Make) -> None:
    node = make_node(["python", "-c", "print('x' * 10_000_000); print('end')"], echo=True)
    assert echoed(node) == b"[worker-0 rank 0] " + b"x" * 10_000_000 + b"\n[worker-0 rank 0] end\n"


def test_a_slow_reader_does_not_hold_up_a_rank(make_node: Make) -> None:
    node = make_node("head -c 3000000 /dev/zero | tr '\\0' '\\n'; touch done", echo=True)
    process = node.start(stdout=subprocess.PIPE)
    node.until(lambda: (node.work / "done").exists())
    time.sleep(0.2)
    assert process.poll() is None
    data, _ = process.communicate(timeout=60)
    assert data == b"[worker-0 rank 0] \n" * 3_000_000


def test_a_reader_that_goes_away_does_not_matter(make_node: Make) -> None:
    node = make_node("for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done", echo=True)
    process = node.start(stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert node.wait() == 0
    assert node.log().count(b"\n") == 5


PROMPTS = """
import os, sys, time
sys.stdout.write("whole\\nEpoch 1: ")
sys.stdout.flush()
while not os.path.exists("go"):
    time.sleep(0.02)
sys.stdout.write("done\\nend")
"""


def test_an_unfinished_line_is_shown_in_a_pod_and_follows_whole(make_node: Make) -> None:
    node = make_node(["python", "train.py"], echo="pod")
    node.script(PROMPTS)
    process = node.start(stdout=subprocess.PIPE)
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(2)]
    (node.work / "go").touch()
    rest, _ = process.communicate(timeout=60)
    parser = Parser()
    lines = [parser.parse(raw) for raw in (*first, *rest.splitlines(keepends=True))]
    found = [(line.seq, line.start, line.data) for line in lines if line.key == "0.out"]
    if (2, 0, b"end") in found:  # a machine under load shows the last line as an unfinished one, too
        found.remove((2, 0, b"end"))
    assert found == [(0, -1, b"whole\n"), (1, 0, b"Epoch 1: "), (1, -1, b"Epoch 1: done\n"), (2, -1, b"end")]
