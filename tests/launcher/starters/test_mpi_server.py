"""Remote starts for mpirun: two launchers, one with the command, one that follows."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.launcher.gang.handshake import LINE, MPI, frame, proof, take_frame
from longboat.launcher.starters.mpi_agent import parse
from longboat.launcher.starters.mpi_server import REQUEST, STDIN
from tests.launcher.nodes import Node

Make = Callable[..., Node]

ADDRESSES = {"worker-0": "127.0.0.1", "worker-1": "127.0.0.2"}


def free_port() -> int:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1])


class Pair:
    """The node that runs mpirun, and its follower."""

    def __init__(self, make_node: Make, tmp_path: Path, command: str, folder: str = "") -> None:
        token = tmp_path / "token"
        token.write_text("s3cret-token\n")
        self.port = free_port()
        common = {
            "peers": [{"node": node, "address": address} for node, address in ADDRESSES.items()],
            "mpi": {"token_file": str(token), "port": self.port},
            "procs": 2,
            "grace_s": 2,
        }
        self.first = make_node(command, starter="mpirun", env={"LONGBOAT_MPI_HOSTS": "worker-0:2,worker-1:3"}, **common)
        self.second = make_node(
            "", starter="follower", node="worker-1", index=1, address="127.0.0.2", env={"ONLY": "second"}, **common
        )
        if folder:
            for node in (self.first,):
                moved = node.folder / folder
                node.directory.rename(moved)
                node.directory = moved
                node.plan["directory"] = str(moved)

    def run(self) -> int:
        self.second.start()
        self.second.until(lambda: self.second.has("ready.json"))
        return self.first.run()

    def release(self) -> int:
        (self.second.directory / "ending.json").write_text('{"reason": "success", "grace_s": 1}')
        self.second.signal(signal.SIGUSR2)
        return self.second.wait()


def test_commands_run_in_the_other_nodes_environment(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(
        make_node,
        tmp_path,
        "echo typed | $OMPI_MCA_plm_rsh_agent -x -p 22 user@worker-1 'echo $ONLY $LONGBOAT_NODE' \\; "
        "'cat; pwd; echo bad >&2; exit 6'",
    )
    assert pair.run() == 6
    work = str(pair.second.work)
    assert pair.first.log().decode().splitlines() == ["second worker-1", "typed", work]
    assert pair.first.log("0.err") == b"bad\n"
    assert pair.first.outcome["message"] == "exit code 6: bad"
    assert pair.release() == 0
    assert pair.second.outcome["ended_by"] == "success"


def test_a_node_serves_itself_too(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(make_node, tmp_path, "$OMPI_MCA_plm_rsh_agent worker-0 echo here '$LONGBOAT_NODE'")
    assert pair.run() == 0
    assert pair.first.log() == b"here worker-0\n"
    assert pair.release() == 0


def test_host_files_and_folders_with_blanks(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(
        make_node,
        tmp_path,
        "cat $OMPI_MCA_orte_default_hostfile $PRTE_MCA_prte_default_hostfile $I_MPI_HYDRA_HOST_FILE; "
        "$OMPI_MCA_plm_rsh_agent worker-1 true; echo $? $OMPI_MCA_plm_rsh_agent",
        folder="a node",
    )
    assert pair.run() == 0
    lines = pair.first.log().decode().splitlines()
    assert lines[:6] == ["worker-0 slots=2", "worker-1 slots=3"] * 2 + ["worker-0:2", "worker-1:3"]
    code, agent = lines[6].split(" ")
    assert code == "0"
    assert not os.path.lexists(agent)
    pair.release()


def test_a_lost_connection_ends_the_remote_command(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(
        make_node,
        tmp_path,
        "$OMPI_MCA_plm_rsh_agent worker-1 'echo $$ > pid; echo up; exec sleep 1000' & echo $! > agent; wait",
    )
    pair.second.start()
    pair.second.until(lambda: pair.second.has("ready.json"))
    pair.first.start()
    pair.first.until_log("up")
    pid = int((pair.second.work / "pid").read_text())
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = b""
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"--agent" in words and str(pair.first.directory).encode() in words:
                os.kill(int(entry.name), signal.SIGKILL)
    pair.second.until(lambda: not os.path.exists(f"/proc/{pid}"))
    pair.first.wait()
    assert pair.release() == 0


def test_stop_of_the_first_ends_everything(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(make_node, tmp_path, "$OMPI_MCA_plm_rsh_agent worker-1 'echo up; exec sleep 1000'")
    pair.second.start()
    pair.second.until(lambda: pair.second.has("ready.json"))
    pair.first.start()
    pair.first.until_log("up")
    pair.first.signal(signal.SIGTERM)
    assert pair.first.wait() != 0
    pair.second.signal(signal.SIGTERM)
    pair.second.wait()
    assert pair.second.survivors() == []


def test_large_output_comes_through(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(make_node, tmp_path, "$OMPI_MCA_plm_rsh_agent worker-1 'head -c 20000000 /dev/zero'")
    assert pair.run() == 0
    assert len(pair.first.log()) == 20_000_000
    pair.release()


def test_unknown_hosts_are_refused(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(make_node, tmp_path, "$OMPI_MCA_plm_rsh_agent elsewhere true")
    assert pair.run() == 255
    assert b"elsewhere is not a node of this run" in pair.first.log("0.err")
    pair.release()


PROVEN = proof(b"s3cret-token", MPI)
PWN = json.dumps({"command": "touch pwned"}).encode()


def answer(address: str, port: int, data: bytes) -> bytes:
    """What comes back for these bytes until the connection ends."""
    got = b""
    with socket.create_connection((address, port), timeout=30) as connection:
        try:
            connection.sendall(data)
            while part := connection.recv(4096):
                got += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    return got


def test_without_the_token_nothing_runs_and_nothing_ends_the_launcher(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(make_node, tmp_path, "true")
    pair.second.start()
    pair.second.until(lambda: pair.second.has("ready.json"))
    for data in (
        frame(REQUEST, json.dumps({"token": "wrong", "command": "touch pwned"}).encode()),
        frame(REQUEST, PWN) * 3,
        proof(b"wrong", MPI) + frame(REQUEST, PWN),
        proof(b"s3cret-token", LINE) + frame(REQUEST, PWN),
        b"s3cret-token" * 3 + frame(REQUEST, PWN),
        b"R\xff\xff\xff\xff" * 7,
        frame(REQUEST, b"[" * 4090),
        PROVEN + frame(REQUEST, b"[" * 100_000),
        PROVEN + frame(REQUEST, b'{"command": 7}'),
        PROVEN + frame(REQUEST, b'{"command": "a\\u0000b"}'),
        PROVEN + frame(REQUEST, b'"text"'),
        PROVEN + frame(REQUEST, b"\xff"),
        PROVEN + b"R\xff\xff\xff\xff",
        PROVEN + frame(STDIN, b"early"),
    ):
        assert answer("127.0.0.2", pair.port, data) == b"", data[:60]
    ran = answer("127.0.0.2", pair.port, PROVEN + frame(REQUEST, b'{"command": "echo it runs"}'))
    assert b"it runs\n" in ran and b'"exit_code":0' in ran
    torn = answer("127.0.0.2", pair.port, PROVEN + frame(REQUEST, b'{"command": "sleep 1000"}') + frame(b"?", b""))
    assert torn == b""
    assert pair.release() == 0
    assert not (pair.second.work / "pwned").exists()


def test_the_token_is_in_no_argument_or_variable(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(make_node, tmp_path, "env; $OMPI_MCA_plm_rsh_agent worker-1 env; cat $LONGBOAT_NODE_DIR/mpi.json")
    assert pair.run() == 0
    assert b"LONGBOAT_NODE=worker-1" in pair.first.log()
    assert b"s3cret" not in pair.first.log()
    pair.release()


def test_a_port_that_is_taken_is_told_in_the_outcome(make_node: Make, tmp_path: Path) -> None:
    pair = Pair(make_node, tmp_path, "true")
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", pair.port))
        taken.listen()
        assert pair.first.run() == 205
    assert pair.first.outcome["exit_code"] == 205
    assert "in use" in pair.first.outcome["message"]


def test_frames_come_in_pieces() -> None:
    buffer = bytearray()
    got = []
    for byte in frame(b"O", b"hello") + frame(b"X"):
        buffer.append(byte)
        one = take_frame(buffer)
        if one:
            got.append(one)
    assert got == [(b"O", b"hello"), (b"X", b"")]


def test_agent_arguments() -> None:
    assert parse(["-x", "-l", "me", "-o", "A=b", "host", "run", "-v", "it"]) == ("host", "run -v it")
    assert parse(["me@host", "x"]) == ("host", "x")
    with pytest.raises(ValueError):
        parse(["host"])
    assert sys.executable
