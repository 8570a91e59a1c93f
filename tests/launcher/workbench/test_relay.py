"""The relay passes bytes both ways, also when one side is slow or has said all it will, and knows when it was used."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from longboat.launcher.workbench import relay as module
from longboat.launcher.workbench.relay import Relay

MUCH = bytes(range(256)) * 4096 * 4  # more than the buffers of both sockets take


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


@pytest.fixture
def relay(server: socket.socket) -> Iterator[Relay]:
    made, over = Relay(0, server.getsockname()[1]), threading.Event()

    def work() -> None:
        while not over.is_set():
            made.turn(0.05)
        made.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield made
    over.set()
    thread.join()


def read_all(end: socket.socket) -> bytes:
    blocks = []
    while block := end.recv(1 << 16):
        blocks.append(block)
    return b"".join(blocks)


def test_much_both_ways_and_the_end_of_each_by_itself(relay: Relay, server: socket.socket) -> None:
    client = socket.create_connection(("127.0.0.1", relay.port))
    peer = server.accept()[0]
    sending = threading.Thread(target=lambda: (client.sendall(MUCH), client.shutdown(socket.SHUT_WR)))
    sending.start()
    assert read_all(peer) == MUCH
    sending.join()
    answering = threading.Thread(target=lambda: (peer.sendall(MUCH[::-1]), peer.close()))
    answering.start()
    assert read_all(client) == MUCH[::-1]
    answering.join()
    client.close()


def test_a_client_that_goes_away_takes_the_servers_side_along(relay: Relay, server: socket.socket) -> None:
    client = socket.create_connection(("127.0.0.1", relay.port))
    peer = server.accept()[0]
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not goodbye
    client.close()
    try:
        assert peer.recv(1) == b""
    except ConnectionResetError:
        pass


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    relay = Relay(0, port)
    client = socket.create_connection(("127.0.0.1", relay.port))
    assert relay.turn(5.0)
    assert client.recv(1) == b""
    assert not relay.turn(0.0)
    relay.close()


def test_at_the_limit_a_turn_waits_and_the_next_comes_in_when_one_goes(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 1)
    relay, turns = Relay(0, server.getsockname()[1]), []
    accept = relay._accept
    monkeypatch.setattr(relay, "_accept", lambda: turns.append(1) or accept())
    first = socket.create_connection(("127.0.0.1", relay.port))
    peer = server.accept()[0] if relay.turn(5.0) else None
    assert peer is not None
    with socket.create_connection(("127.0.0.1", relay.port)) as second:
        second.sendall(b"hello")
        for _ in range(20):
            relay.turn(0.0)
        assert len(turns) == 1  # nobody looks at the one that waits
        first.close()
        peer.close()
        server.settimeout(60.0)
        while len(turns) == 1:
            relay.turn(1.0)
        waited = server.accept()[0]
        relay.turn(5.0)
        assert waited.recv(5) == b"hello"
        waited.close()
    relay.close()
