"""`longboat top`: runs with what they use, GPUs with who has them."""

from __future__ import annotations

import json
from typing import Any

from longboat.cli.commands.metrics.top import screen
from longboat.core.runs import RankStatus, RankUsage
from longboat.metrics.values import Activity, GpuUse
from tests.cli.conftest import Longboat
from tests.launcher.nodes import until
from tests.metrics.test_values import status


def rank(number: int, **usage: Any) -> RankStatus:
    return RankStatus(rank=number, role="worker", node="worker-0", alive=True, usage=RankUsage(**usage))


def test_runs_that_wait_come_last_and_gpus_name_their_users() -> None:
    ranks = (rank(0, cpu=1.5, memory=1 << 30, gpu=90.0, gpu_power=500.0), rank(1, cpu=0.5, memory=1 << 30, gpu=70.0))
    busy = status(name="busy", user="ann", gpus=2, started=100.0, step=12, steps_per_s=3.25, ranks=ranks)
    waits = status(name="waits", user="bob", phase="pending", reason="waits for 2 GPUs")
    gpus = (
        GpuUse(
            node="worker-0",
            number="0",
            model="H200",
            run="busy",
            user="ann",
            ranks=(0,),
            use=90.0,
            memory_total=1 << 37,
        ),
        GpuUse(node="this machine", number="1"),
    )
    lines = screen(Activity(runs=(waits, busy), gpus=gpus), 160.0, width=None)
    assert lines[0] == "1 running, 1 waiting, 1 of 2 GPUs in use"
    cells = lines[3].split()
    assert cells[:8] == ["busy", "ann", "running", "1", "2", "1m", "12", "3.25"]
    assert cells[8:] == ["2", "2Gi", "80", "-", "500"]
    assert lines[4].startswith("waits")
    assert "waits: waits for 2 GPUs" in lines
    assert lines[-2].split()[:2] == ["worker-0", "0"] and "busy  ann" in lines[-2]
    assert "free" in lines[-1]


def test_reasons_cannot_drive_the_terminal() -> None:
    lines = screen(Activity(runs=(status(name="a", reason="x\x1b[2Jy", findings=("\x1b]0;t\x07",)),)), 1.0, width=None)
    assert "a: x\\x1b[2Jy" in lines and "a: \\x1b]0;t\\x07" in lines


def test_a_narrow_screen_cuts_lines_and_nothing_runs() -> None:
    assert screen(Activity(), 1.0, width=40) == ["0 running, 0 waiting, 0 of 0 GPUs in use"]
    lines = screen(Activity(runs=(status(name="x" * 60),)), 1.0, width=40)
    assert all(len(line) <= 40 for line in lines)


def test_a_run_of_this_machine_with_its_gpu(longboat: Longboat) -> None:
    longboat.environment["LONGBOAT_GPUS"] = "fake-0,fake-1"
    (longboat.folder / "train.py").write_text(
        "import longboat, time\nlongboat.step(4, loss=0.5)\nwhile not longboat.should_stop(): time.sleep(0.05)\n"
    )
    longboat("run", "--name", "t1", "--gpus", "1", "-d", "train.py")
    told = until(
        lambda: next((run for run in json.loads(longboat("top", "-o", "json").out)["runs"] if run["step"] == 4), None)
    )
    assert told["name"] == "t1" and told["phase"] == "running" and "usage" in told
    shown = longboat("top").out
    assert "1 running, 0 waiting, 1 of 2 GPUs in use" in shown and "free" in shown
    longboat("stop", "t1")
