"""The launcher as it is started in a container: variables on stdin, whose end says that the engine is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

from tests.launcher.nodes import LAUNCHER, Node

Make = Callable[..., Node]

TRAIN = """
import os, time
print(os.environ["TOKEN"], os.read(0, 10), flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def start(node: Node) -> subprocess.Popen[bytes]:
    path = node.folder / "plan.json"
    path.write_text(json.dumps(node.plan))
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--container", str(path)]
    node.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": os.defpath})
    return node.process


def tell(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def test_variables_come_on_stdin_and_ranks_have_a_stdin_of_their_own(make_node: Make) -> None:
    node = make_node("python3 train.py")
    node.script(TRAIN)
    process = start(node)
    tell(process, b'{"TOKEN": ')
    tell(process, b'"one"}\n')
    node.until_log("one b''")
    (node.work / "go").touch()
    assert process.wait() == 0
    assert (node.directory / "home").is_dir()


def test_when_the_engine_is_gone_the_node_ends(make_node: Make) -> None:
    node = make_node("python3 train.py", grace_s=1)
    node.script(TRAIN)
    process = start(node)
    tell(process, b'{"TOKEN": "one"}\n')
    node.until_log("one b''")
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() != 0
    assert node.outcome["ended_by"] == "lost"


def test_an_engine_that_was_gone_before_it_said_anything(make_node: Make) -> None:
    process = start(make_node("true"))
    _, said = process.communicate(b'{"TOKEN": ')
    assert process.returncode == 208 and b"gone" in said
