"""The heartbeat: steps, memory, the memory limit."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.launcher.nodes import Node

Make = Callable[..., Node]


def test_beat_tells_phase_step_metrics_and_memory(make_node: Make) -> None:
    node = make_node(["python", "train.py"], first_rank=3, memory_limit=1 << 40)
    node.script(
        "import longboat, time\n"
        "longboat.step(7, loss=0.5, bad=float('nan'), text='x')\nprint('up', flush=True)\ntime.sleep(1000)\n"
    )
    node.start()
    beat = node.until(lambda: node.has("beat.json") and node.json("beat.json")["memory"] and node.json("beat.json"))
    assert beat["phase"] == "running"
    assert beat["missing"] == []
    rank = beat["ranks"]["3"]
    assert rank["alive"] is True
    assert rank["step"] == 7
    assert rank["metrics"] == {"loss": 0.5}
    assert rank["memory"] > 1 << 20
    assert rank["step_time"] <= beat["time"]
    assert rank["output_time"] <= beat["time"]
    node.signal(signal.SIGTERM)
    node.wait()
    last = node.json("beat.json")
    assert last["phase"] == "ending"
    assert last["ranks"]["3"]["alive"] is False
    assert node.report(3)["step"] == 7


def test_the_largest_rank_over_the_limit_is_killed_as_oom(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=2, memory_limit=200 << 20)
    node.script(
        "import os, time\n"
        "block = bytearray(int(260e6)) if os.environ['RANK'] == '1' else b''\n"
        "for at in range(0, len(block), 4096): block[at] = 1\n"
        "time.sleep(1000)\n"
    )
    assert node.run() == 137
    report = node.report(1)
    assert report["cause"] == "oom"
    assert report["memory_limit"] == 200 << 20
    assert report["memory_peak"] > 180e6
    assert report["ended_by"] is None
    assert "over the limit of 200 MiB" in node.outcome["message"]
    assert node.report(0)["ended_by"] == "failure"


def test_memory_shared_by_forks_is_counted_once(make_node: Make) -> None:
    node = make_node(["python", "train.py"], memory_limit=400 << 20)
    node.script(
        "import os, time\nblock = b'x' * 150_000_000\n"
        "for _ in range(4):\n    if os.fork() == 0:\n        time.sleep(1.5)\n        os._exit(0)\n"
        "time.sleep(1.5)\nprint(len(block))\n"
    )
    assert node.run() == 0


def test_a_memory_error_is_oom(make_node: Make) -> None:
    node = make_node(["python", "-c", "raise MemoryError('no room')"])
    assert node.run() == 1
    assert node.outcome["cause"] == "oom"
    assert node.outcome["message"] == "MemoryError: no room"
