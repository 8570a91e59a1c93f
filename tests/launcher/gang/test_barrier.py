"""Before the ranks: setup and peers."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable

from tests.launcher.nodes import Node

Make = Callable[..., Node]


def test_setup_runs_once_before_the_ranks(make_node: Make) -> None:
    node = make_node("cat made", procs=2, setup="echo $$ >> made; echo to out; echo to err >&2")
    assert node.run() == 0
    assert len(node.log("0.out").split()) == 1
    assert node.log("0.out") == node.log("1.out")
    assert node.log("setup.out") == b"to out\nto err\n"


def test_setup_failure(make_node: Make) -> None:
    node = make_node("echo never", setup="echo first; echo no such package >&2; exit 3")
    assert node.run() == 3
    outcome = node.outcome
    assert outcome["cause"] == "setup"
    assert outcome["message"] == "setup failed: exit code 3: no such package"
    assert outcome["tail"] == ["first", "no such package"]
    assert outcome["first"] is None
    assert not node.has("ready.json")
    assert node.log("0.out") == b""


def test_setup_killed_by_a_signal(make_node: Make) -> None:
    node = make_node("echo never", setup="kill -9 $$")
    assert node.run() == 137
    assert node.outcome["message"] == "setup failed: killed by SIGKILL (signal 9)"


def test_setup_waits_for_the_lock_and_can_be_stopped_meanwhile(make_node: Make) -> None:
    node = make_node("echo never", setup="echo ran")
    lock = node.folder / "lock"
    node.plan["setup_lock"] = str(lock)
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        node.start()
        node.until(lambda: node.has("beat.json"))
        assert node.json("beat.json")["phase"] == "setup"
        node.signal(signal.SIGTERM)
        assert node.wait() == 0
    assert node.outcome["ended_by"] == "stop"
    assert node.log("setup.out") == b""
    assert node.run() == 0
    assert node.log("setup.out") == b"ran\n"


def test_stop_during_setup_ends_it(make_node: Make) -> None:
    node = make_node("echo never", setup="echo up; sleep 1000")
    node.start()
    node.until_log("up", "setup.out")
    node.signal(signal.SIGTERM)
    node.wait()
    assert node.outcome["ended_by"] == "stop"
    assert node.survivors() == []


def peers(*names: str) -> list[dict[str, str]]:
    return [{"node": name, "address": "127.0.0.1"} for name in names]


def test_waits_for_the_files_of_the_peers(make_node: Make) -> None:
    node = make_node("echo go", peers=peers("worker-0", "worker-1", "ps-0"))
    files = {name: str(node.folder / name) for name in ("worker-0", "worker-1", "ps-0")}
    files["worker-0"] = str(node.directory / "ready.json")
    node.plan["wait"] = {"kind": "files", "timeout_s": 60, "files": files}
    node.start()
    node.until(lambda: node.has("beat.json") and node.json("beat.json")["missing"] == ["worker-1", "ps-0"])
    assert node.json("beat.json")["phase"] == "waiting"
    assert node.log() == b""
    for name in ("worker-1", "ps-0"):
        open(files[name], "w").close()
    assert node.wait() == 0
    assert node.log() == b"go\n"


def test_missing_peers_are_named(make_node: Make) -> None:
    node = make_node("echo never", peers=peers("worker-0", "worker-1"))
    files = {"worker-0": str(node.directory / "ready.json"), "worker-1": "/no/such/file"}
    node.plan["wait"] = {"kind": "files", "timeout_s": 0.3, "files": files}
    process = node.start(stderr=subprocess.PIPE)
    assert node.wait() == 209
    assert node.outcome["cause"] == "peers"
    assert node.outcome["message"] == "1 of 2 nodes did not come within 0.3 s: worker-1"
    assert process.stderr is not None
    assert b"worker-1" in process.stderr.read()
    process.stderr.close()


def test_addresses_are_looked_up(make_node: Make) -> None:
    node = make_node("echo go", wait={"kind": "dns", "timeout_s": 30})
    node.plan["peers"] = [*peers("worker-0"), {"node": "worker-1", "address": "localhost"}]
    assert node.run() == 0
    assert node.log() == b"go\n"


def test_an_address_that_cannot_be_found_is_named(make_node: Make) -> None:
    node = make_node("echo never", wait={"kind": "dns", "timeout_s": 0.3})
    node.plan["peers"] = [*peers("worker-0"), {"node": "worker-1", "address": "no-such-host.invalid"}]
    assert node.run() == 209
    assert "worker-1" in node.outcome["message"]
    assert "worker-0" not in node.outcome["message"]


def test_stop_while_waiting(make_node: Make) -> None:
    node = make_node("echo never", peers=peers("worker-0", "worker-1"))
    node.plan["wait"] = {"kind": "files", "timeout_s": 60, "files": {"worker-1": "/no/such/file"}}
    node.start()
    node.until(lambda: node.has("ready.json"))
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert node.outcome["ended_by"] == "stop"
    assert not os.path.exists(node.directory / "rank-0.json")
