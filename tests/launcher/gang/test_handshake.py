"""A live gang among strangers: garbage, slow senders and floods at its ports change nothing about how it ends."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.launcher.gang.handshake import LINE, MPI, PROOF_SIZE, frame, proof
from tests.launcher.hostile import Crowd, Flood, garbage, limit_descriptors, open_descriptors, throw
from tests.launcher.nodes import Node
from tests.launcher.pods import Pods
from tests.launcher.starters.test_mpi_server import Pair

MakePods = Callable[..., Pods]
MakeNode = Callable[..., Node]

UNTIL_TOLD = """
import os, sys, time
print('up', flush=True)
while not os.path.exists(os.path.join(os.environ['SHARED'], 'enough')):
    time.sleep(0.02)
sys.exit(7 if os.environ['RANK'] == '2' else 0)
"""
DESCRIPTORS = 96
"""Few, so that a crowd of some hundreds is more than a launcher could ever hold."""


def test_proofs_differ_by_token_and_purpose() -> None:
    proofs = {proof(b"a", LINE), proof(b"b", LINE), proof(b"a", MPI)}
    assert len(proofs) == 3 and {len(each) for each in proofs} == {PROOF_SIZE}
    with pytest.raises(ValueError, match="empty"):
        proof(b"", LINE)


def test_one_packet_without_a_token_changes_nothing(make_pods: MakePods) -> None:
    """The frame that ended a gang: nested deeper than the parser goes, from somebody who knows nothing."""
    pods = make_pods(script=UNTIL_TOLD, roles={"worker": 3})
    pods.start_all()
    pods.until_said("up")
    place = ("127.0.0.2", pods.gang["line"]["port"])
    for data in (b"H\0\0\x0f\xff" + b"[" * 4095, b"H\0\0\0\x29" + b'{"token": "x", "node": 1, "got": 1e999999}'):
        throw(place, data)
    (pods.folder / "enough").touch()
    assert [pods.wait(each) for each in range(3)][2] == 7
    assert (pods.verdict["exit_code"], pods.verdict["node"]) == (7, "worker-2")


def test_the_token_of_another_gang_opens_nothing(make_pods: MakePods) -> None:
    """Who may read the Secrets of one namespace: the same request, proved with its token and with the one here."""
    pods = make_pods(script=UNTIL_TOLD, roles={"worker": 1, "far": 1})
    pods.start(0)
    pods.until(lambda: pods.beat(0).get("phase") == "waiting")
    request = frame(b"H", b'{"node": "far-0", "session": "s", "got": 0}')
    own = pods.root(0).joinpath("gang", "token").read_bytes()
    answers = []
    for proved in (proof(b"of another gang", LINE), proof(own, MPI), proof(own, LINE)):
        with socket.create_connection(("127.0.0.2", pods.gang["line"]["port"]), timeout=20) as stranger:
            stranger.sendall(proved + request)
            try:
                answers.append(stranger.recv(1))
            except ConnectionResetError:
                answers.append(b"")
    assert answers == [b"", b"", b"W"]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_gang_forms_and_ends_in_a_crowd_of_strangers(make_pods: MakePods, seed: int) -> None:
    rng = random.Random(seed)
    pods = make_pods(script=UNTIL_TOLD, roles={"worker": 3}, line={"lost_s": 20})
    place = ("127.0.0.2", pods.gang["line"]["port"])
    head = pods.start(0)
    limit_descriptors(head.pid, DESCRIPTORS)
    pods.until(lambda: pods.beat(0).get("phase") == "waiting")
    slow, flood = Crowd(place), Flood(place)
    try:
        slow.grow(50)
        pods.start(1)
        pods.start(2)
        pods.until_said("up")  # the peers got in, and the ranks run
        for _ in range(150):
            throw(place, garbage(rng), reset=rng.random() < 0.3)
        slow.grow(50)
        slow.drip()
        assert open_descriptors(head.pid) < DESCRIPTORS
        assert flood.made > 100  # more than the launcher has descriptors
        (pods.folder / "enough").touch()
        codes = [pods.wait(each) for each in range(3)]
    finally:
        flood.stop()
        slow.close()
    assert codes[2] == 7, [pods.stderr(one) for one in range(3)]
    assert (pods.verdict["exit_code"], pods.verdict["node"]) == (7, "worker-2")
    assert "was refused" in pods.stderr(0)
    assert pods.stderr(0).count("was refused") == 1


def test_a_connection_that_broke_comes_back_in_a_flood(make_pods: MakePods) -> None:
    """A peer whose connection is cut while strangers come without end is a member again, and its report arrives."""
    from tests.launcher.pods import Relay

    pods = make_pods(script=UNTIL_TOLD, roles={"worker": 3}, line={"lost_s": 20})
    port = pods.gang["line"]["port"]
    relay, flood = Relay(("127.0.0.2", port)), Flood(("127.0.0.2", port))
    try:
        for number in (0, 1):
            pods.start(number)
        nodes = [dict(node) for node in pods.gang["nodes"]]
        nodes[0]["address"] = "127.0.0.1"
        pods.start(2, gang={"nodes": nodes, "line": {**pods.gang["line"], "port": relay.port}})
        pods.until_said("up")
        for _ in range(3):
            relay.cut()
            relay.mend()
        (pods.folder / "enough").touch()
        assert [pods.wait(each) for each in range(3)][2] == 7
        assert relay.connections > 1
        assert (pods.verdict["exit_code"], pods.verdict["node"]) == (7, "worker-2")
    finally:
        flood.stop()
        relay.close()


def test_the_port_of_mpirun_in_a_crowd_of_strangers(make_node: MakeNode, tmp_path: Path) -> None:
    rng = random.Random(3)
    pair = Pair(make_node, tmp_path, "$OMPI_MCA_plm_rsh_agent worker-1 'echo served; exit 6'")
    place = ("127.0.0.2", pair.port)
    process = pair.second.start()
    limit_descriptors(process.pid, DESCRIPTORS)
    pair.second.until(lambda: pair.second.has("ready.json"))
    slow, flood = Crowd(place), Flood(place)
    try:
        slow.grow(50)
        for _ in range(100):
            throw(place, garbage(rng), reset=rng.random() < 0.3)
        slow.drip()
        assert open_descriptors(process.pid) < DESCRIPTORS
        assert pair.first.run() == 6
    finally:
        flood.stop()
        slow.close()
    assert pair.first.log() == b"served\n"
    assert pair.release() == 0
    assert not (pair.second.work / "pwned").exists()


def test_silent_strangers_are_gone_after_a_while(make_pods: MakePods) -> None:
    pods = make_pods(script=UNTIL_TOLD, roles={"worker": 2})
    pods.start(0)
    pods.until(lambda: pods.beat(0).get("phase") == "waiting")
    crowd = Crowd(("127.0.0.2", pods.gang["line"]["port"]))
    try:
        crowd.grow(3)
        crowd.open[0].settimeout(60)
        assert crowd.open[0].recv(1) == b""
    finally:
        crowd.close()
    pods.start(1)
    pods.until_said("up")
    (pods.folder / "enough").touch()
    assert [pods.wait(0), pods.wait(1)] == [0, 0]
