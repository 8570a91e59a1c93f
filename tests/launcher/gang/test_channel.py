"""The line itself, both ends in this process: numbered messages over connections that break."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from longboat.launcher.gang import channel as line
from longboat.launcher.gang import handshake
from longboat.launcher.gang.channel import HELLO, MESSAGE, WELCOME, Channel, ChannelListener, Dialer
from longboat.launcher.gang.handshake import LINE, MPI, frame, proof, take_frame
from longboat.launcher.node.jsonfiles import dumps
from longboat.launcher.node.loop import EventLoop
from tests.launcher.pods import Relay, free_port

PATIENCE_S = 60.0
TOKEN = b"s3cret"


class Ends:
    """A listener for two nodes, and a dialer of the first through a relay."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.port = free_port("127.0.0.1")
        self.at_head: list[dict[str, Any]] = []
        self.at_node: list[dict[str, Any]] = []
        self.channels = {name: Channel(self.loop, self.at_head.append) for name in ("n-1", "n-2")}
        self.listener = ChannelListener(self.loop, "127.0.0.1", self.port, TOKEN, self.channels)
        self.relay = Relay(("127.0.0.1", self.port))
        self.channel = Channel(self.loop, self.at_node.append)
        self.dialer: Dialer | None = None

    def dial(self, **greeting: str) -> None:
        hello = {"node": "n-1", "session": "one", **greeting}
        self.dialer = Dialer(self.loop, ("127.0.0.1", self.relay.port), TOKEN, hello, self.channel)

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "did not happen"
            self.loop.after("test", 0.01, lambda: None)
            self.loop.turn()

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.after("test", 0.01, lambda: None)
            self.loop.turn()

    def close(self) -> None:
        if self.dialer is not None:
            self.dialer.close()
        self.listener.close()
        self.relay.close()
        signal.set_wakeup_fd(-1)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_what_was_said_before_the_connection_arrives(ends: Ends) -> None:
    ends.channel.send({"n": 1})
    ends.channels["n-1"].send({"m": 1})
    ends.dial()
    ends.channel.send({"n": 2})
    ends.until(lambda: len(ends.at_head) == 2 and len(ends.at_node) == 1)
    assert ends.at_head == [{"n": 1}, {"n": 2}] and ends.at_node == [{"m": 1}]
    ends.until(lambda: ends.channel.is_idle and ends.channels["n-1"].is_idle)


def test_nothing_is_lost_or_repeated_however_often_it_breaks(ends: Ends) -> None:
    ends.dial()
    rng = random.Random(7)
    sent: list[dict[str, Any]] = []
    for n in range(200):
        message = {"n": n, "text": "x" * rng.randrange(0, 60_000)}
        sent.append(message)
        ends.channel.send(message)
        ends.channels["n-1"].send(message)
        if rng.random() < 0.15:
            ends.relay.cut()
            ends.relay.mend()
        ends.turns(rng.randrange(0, 3))
    ends.until(lambda: len(ends.at_head) == len(ends.at_node) == 200)
    ends.until(lambda: ends.channel.is_idle and ends.channels["n-1"].is_idle)
    assert ends.at_head == sent and ends.at_node == sent
    assert ends.relay.connections > 5


def test_the_other_side_may_come_later() -> None:
    loop, port, got = EventLoop(), free_port("127.0.0.1"), list[dict[str, Any]]()
    channel = Channel(loop, lambda message: None)
    dialer = Dialer(loop, ("127.0.0.1", port), b"t", {"node": "n", "session": "s"}, channel)
    channel.send({"early": True})
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not dialer.problem and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dialer.problem
        listener = ChannelListener(loop, "127.0.0.1", port, b"t", {"n": Channel(loop, got.append)})
        while not got and time.monotonic() < deadline:
            loop.after("test", 0.01, lambda: None)
            loop.turn()
        assert got == [{"early": True}]
        listener.close()
    finally:
        dialer.close()
        signal.set_wakeup_fd(-1)


def test_a_name_that_is_not_known_yet() -> None:
    loop = EventLoop()
    channel = Channel(loop, lambda message: None)
    greeting = {"node": "n", "session": "s"}
    dialer = Dialer(loop, ("no-such-host.invalid", 29499), b"t", greeting, channel)
    deadline = time.monotonic() + PATIENCE_S
    while not dialer.problem and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dialer.problem and not channel.is_up
    dialer.close()
    signal.set_wakeup_fd(-1)


def raw(ends: Ends, data: bytes) -> bytes:
    """Send bytes as a stranger; what comes back until the end or silence."""
    with socket.create_connection(("127.0.0.1", ends.port)) as stranger:
        stranger.sendall(data)
        stranger.setblocking(False)
        deadline, got = time.monotonic() + PATIENCE_S, b""
        while time.monotonic() < deadline:
            ends.turns(1)
            try:
                part = stranger.recv(65536)
            except BlockingIOError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                return got
            if not part:
                return got
            got += part
            if take_frame(bytearray(got)):
                return got
    raise AssertionError("neither answered nor closed")


def test_nothing_is_parsed_and_little_is_read_before_the_proof(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(line, "loads", parsed.append)
    assert raw(ends, proof(b"wrong", LINE) + hello(b"")) == b""
    assert parsed == [] and ends.listener.acceptor.refused == 1


def test_the_oldest_stranger_goes_first_and_a_peer_gets_through(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "UNPROVEN_MAX", 8)
    with contextlib.ExitStack() as crowd:
        strangers = [crowd.enter_context(socket.create_connection(("127.0.0.1", ends.port))) for _ in range(30)]
        ends.until(lambda: ends.listener.acceptor.refused == 22)
        for each in strangers[:22]:
            assert each.recv(1) == b""
        ends.dial()
        ends.until(lambda: ends.channel.is_up)
        strangers[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            strangers[-1].recv(1)


def test_a_slow_stranger_is_dropped_at_a_deadline(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "DEADLINE_S", 0.2)
    with (
        socket.create_connection(("127.0.0.1", ends.port)) as silent,
        socket.create_connection(("127.0.0.1", ends.port)) as proven,
    ):
        silent.sendall(PROVEN[:-1])
        proven.sendall(PROVEN + frame(HELLO, b"x" * 100)[:-1])
        ends.until(lambda: ends.listener.acceptor.refused == 2)
        assert silent.recv(1) == b"" and proven.recv(1) == b""


def test_without_a_descriptor_left_nothing_ends_and_nothing_spins(ends: Ends) -> None:
    """Somebody else in the process, or in the gang, has used them up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ends.turns(2)
    with socket.create_connection(("127.0.0.1", ends.port)) as member, contextlib.ExitStack() as files:
        member.sendall(hello())
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    files.enter_context(open(os.devnull, "rb"))
            begun, turns = time.monotonic(), 0
            while time.monotonic() < begun + 1.0:
                ends.loop.after("test", 0.5, lambda: None)
                ends.loop.turn()
                turns += 1
            assert turns < 50 and not ends.channels["n-1"].is_up
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        ends.until(lambda: ends.channels["n-1"].is_up)


PROVEN = proof(TOKEN, LINE)


def hello(opening: bytes = PROVEN, **keys: object) -> bytes:
    greeting = {"node": "n-1", "session": "one", "got": 0, **keys}
    return opening + frame(HELLO, dumps(greeting).encode())


@pytest.mark.parametrize(
    "data",
    [
        hello(proof(b"wrong", LINE)),
        hello(proof(TOKEN, MPI)),
        hello(b""),
        hello(TOKEN),
        hello(node="n-9"),
        hello(node=["n-1"]),
        hello(session=1),
        hello(got="many"),
        hello(got=-1),
        hello(got=7),
        PROVEN + frame(HELLO, b'{"node": "n-1", "session": "one", "got": 1e999}'),
        PROVEN + frame(HELLO, b'{"node": "n-1", "session": "one", "got": ' + b"9" * 4000 + b"}"),
        PROVEN + frame(HELLO, b"[]"),
        PROVEN + frame(HELLO, b"not json"),
        PROVEN + frame(HELLO, b"\xff\xfe"),
        PROVEN + frame(HELLO, b"[" * 4090),
        PROVEN + frame(HELLO, b'{"node":' * 500),
        PROVEN + frame(HELLO, b"{" * 5000),
        PROVEN + frame(MESSAGE, b"\0" * 8 + b'{"is": "stop"}'),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b" " * 40,
        frame(HELLO, b"[" * 4090),
        b"\xff" * 5000,
    ],
    ids=range(22),
)
def test_unauthenticated_connections_get_no_answer(ends: Ends, data: bytes) -> None:
    assert raw(ends, data) == b""
    assert ends.at_head == [] and not any(channel.is_up for channel in ends.channels.values())
    assert raw(ends, hello()).startswith(WELCOME)


def test_a_second_launcher_under_the_same_name(ends: Ends) -> None:
    strangers: list[str] = []
    ends.listener.on_stranger = strangers.append
    ends.dial()
    ends.until(lambda: ends.channel.is_up)
    assert b"another launcher" in raw(ends, hello(session="two"))
    ends.turns(3)
    assert strangers == ["n-1"] and ends.channel.is_up


NUMBER_1 = b"\0" * 7 + b"\1"


@pytest.mark.parametrize(
    "nonsense",
    [
        frame(b"?", b""),
        frame(MESSAGE, b"\1"),
        frame(MESSAGE, NUMBER_1 + b"[" * 100_000),
        frame(MESSAGE, NUMBER_1 + b"\xff"),
        frame(MESSAGE, NUMBER_1 + b"9" * 100_000),
        frame(MESSAGE, b"\xff" * 8 + b"{}"),
        b"M\xff\xff\xff\xff",
    ],
    ids=range(7),
)
def test_a_member_that_talks_nonsense_is_cut_off(ends: Ends, nonsense: bytes) -> None:
    said: list[str] = []
    ends.channels["n-1"].on_nonsense = said.append
    with socket.create_connection(("127.0.0.1", ends.port)) as member:
        member.sendall(hello())
        ends.until(lambda: ends.channels["n-1"].is_up)
        member.sendall(nonsense)
        ends.until(lambda: not ends.channels["n-1"].is_up)
    assert len(said) == 1 and ends.at_head == []


@pytest.mark.parametrize(
    "answer",
    [b"", b"\xff" * 50, frame(WELCOME, b"[" * 50_000), frame(WELCOME, b'{"got": 1e999}'), frame(WELCOME, b"[1]")]
    + [frame(WELCOME, b'{"got": 12}'), frame(HELLO, b"{}"), frame(WELCOME, b"\xff")],
    ids=range(8),
)
def test_a_node_survives_whatever_stands_in_for_node_0(answer: bytes) -> None:
    """The thread that connects goes on, until the true one is there."""
    loop, at_head = EventLoop(), list[dict[str, Any]]()
    false = socket.create_server(("127.0.0.1", 0))
    port = int(false.getsockname()[1])
    channel = Channel(loop, lambda message: None)
    dialer = Dialer(loop, ("127.0.0.1", port), TOKEN, {"node": "n", "session": "s"}, channel)

    def until(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "did not happen"
            loop.after("test", 0.01, lambda: None)
            loop.turn()

    try:
        for _ in range(2):
            until(lambda: select.select([false], [], [], 0)[0])
            connection, _ = false.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                connection.recv(1 << 16)
                connection.sendall(answer)
        until(lambda: dialer.problem)
        false.close()
        listener = ChannelListener(loop, "127.0.0.1", port, TOKEN, {"n": Channel(loop, at_head.append)})
        channel.send({"is": "ready"})
        until(lambda: at_head == [{"is": "ready"}])
        listener.close()
    finally:
        false.close()
        dialer.close()
        signal.set_wakeup_fd(-1)


def test_silence_breaks_the_connection() -> None:
    """A peer that vanished without a word, its machine with it, sends no end of the connection."""
    loop = EventLoop()
    near, far = socket.socketpair()
    broken: list[bool] = []
    channel = Channel(loop, lambda message: None, ping_s=0.05)
    channel.on_break = lambda: broken.append(True)
    channel.attach(near, 0, b"")
    deadline = time.monotonic() + PATIENCE_S
    while not broken and time.monotonic() < deadline:
        loop.turn()
    assert broken and not channel.is_up
    far.close()
    signal.set_wakeup_fd(-1)
