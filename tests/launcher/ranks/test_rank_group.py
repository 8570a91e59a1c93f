"""First failures, exit codes, reports."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import msgspec
import pytest

from longboat.core.runs import RankReport
from tests.launcher.nodes import Node

Make = Callable[..., Node]

CRASH = """
import os, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, flush=True)
if rank == 2:
    time.sleep(0.3)
    raise ValueError("bad")
time.sleep(1000)
"""


def test_first_failure_of_several(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=4, first_rank=0)
    node.script(CRASH)
    assert node.run() == 1
    outcome = node.outcome
    assert outcome["cause"] == "exception"
    assert outcome["message"] == "ValueError: bad"
    assert outcome["first"]["rank"] == 2
    assert outcome["ended_by"] == "failure"
    report = node.report(2)
    assert report["ended_by"] is None
    assert report["traceback"].startswith("Traceback (most recent call last):")
    assert report["traceback"].endswith("ValueError: bad")
    assert report["tail"][-1] == "ValueError: bad"
    for other in (0, 1, 3):
        assert node.report(other)["ended_by"] == "failure"
        assert node.report(other)["exit_code"] == 143
        assert node.report(other).get("cause") is None


def test_reports_are_rank_reports(make_node: Make) -> None:
    node = make_node("echo so long >&2; exit 7", first_rank=5)
    assert node.run() == 7
    report = msgspec.json.decode((node.directory / "rank-5.json").read_bytes(), type=RankReport)
    assert (report.rank, report.role, report.node, report.exit_code) == (5, "worker", "worker-0", 7)
    assert (report.cause, report.message, report.tail) == ("exit", "exit code 7: so long", ("so long",))
    assert report.started <= report.ended
    assert report.memory_peak


def test_kill_9_of_a_rank(make_node: Make) -> None:
    node = make_node("echo up; exec sleep 1000", procs=2)
    node.start()
    node.until_log("up", "1.out")
    pid = node.until(lambda: node.json("beat.json")["ranks"].get("1", {}).get("pid"))
    os.kill(pid, signal.SIGKILL)
    assert node.wait() == 137
    assert node.outcome["first"]["rank"] == 1
    assert node.outcome["cause"] == "signal"
    assert node.outcome["message"] == "killed by SIGKILL (signal 9)"
    assert node.report(1)["signal"] == 9


def test_a_rank_that_exits_with_zero_leaves_the_others_running(make_node: Make) -> None:
    node = make_node("[ $RANK = 0 ] && exit 0; sleep 0.5; echo done", procs=2)
    assert node.run() == 0
    assert node.log("1.out") == b"done\n"
    assert node.report(0)["ended_ns"] < node.report(1)["ended_ns"]


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["no-such-program-here"], 127, "no-such-program-here: not found"),
        (["./train.sh"], 127, "./train.sh: no such file"),
        (["./plain.txt"], 126, "./plain.txt: not executable"),
        (["./noformat"], 126, "./noformat: not a program; name its interpreter in front of it"),
        (["./nointerpreter"], 127, "./nointerpreter: the interpreter its first line names was not found"),
        ([""], 127, "the command is empty"),
    ],
)
def test_commands_that_cannot_start(make_node: Make, command: list[str], code: int, message: str) -> None:
    node = make_node(command, procs=2)
    node.script("hello", "plain.txt")
    for name, text in (("noformat", "\x00\x01"), ("nointerpreter", "#!/no/such/thing\n")):
        node.script(text, name)
        (node.work / name).chmod(0o755)
    assert node.run() == code
    assert node.outcome["message"] == message
    assert node.report(0)["exit_code"] == code
    assert message.encode() in node.log("0.err")


def test_a_missing_script_is_named(make_node: Make) -> None:
    node = make_node(["python", "missing.py"])
    assert node.run() == 2
    assert "missing.py" in node.outcome["message"]


def test_a_failure_in_the_shell_is_named(make_node: Make) -> None:
    node = make_node("no-such-program-here --x")
    assert node.run() == 127
    assert "not found" in node.outcome["message"]


def test_paths_are_searched_in_the_ranks_path(make_node: Make) -> None:
    node = make_node(["hello"])
    tool = node.folder / "my tools" / "hello"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho hello from a tool\n")
    tool.chmod(0o755)
    node.plan["path_prepend"].insert(0, str(tool.parent))
    assert node.run() == 0
    assert node.log() == b"hello from a tool\n"


def test_a_rank_that_handles_the_end_of_another_is_not_the_culprit(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=2)
    node.script(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('up', flush=True)\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not os.path.exists('go'): time.sleep(0.01)\n    sys.exit(5)\n"
        "time.sleep(1000)\n"
    )
    node.start()
    node.until_log("up", "0.out")
    (node.work / "go").touch()
    assert node.wait() == 5
    assert node.report(0)["exit_code"] == 9
    assert node.report(0)["ended_by"] == "failure"
