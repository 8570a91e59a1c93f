"""The line itself, both ends in this process: numbered messages over connections that break."""

from __future__ import annotations

import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from longboat.launcher.jsonfiles import dumps
from longboat.launcher.line import HELLO, MESSAGE, WELCOME, Channel, Dialer, Listener
from longboat.launcher.loop import Loop
from longboat.launcher.remote import frame, take_frame
from tests.launcher.pods import Relay, free_port

PATIENCE_S = 60.0
TOKEN = "s3cret"


class Ends:
    """A listener for two nodes, and a dialer of the first through a relay."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.port = free_port("127.0.0.1")
        self.at_head: list[dict[str, Any]] = []
        self.at_node: list[dict[str, Any]] = []
        self.channels = {name: Channel(self.loop, self.at_head.append) for name in ("n-1", "n-2")}
        self.listener = Listener(self.loop, "127.0.0.1", self.port, TOKEN.encode(), self.channels)
        self.relay = Relay(("127.0.0.1", self.port))
        self.channel = Channel(self.loop, self.at_node.append)
        self.dialer: Dialer | None = None

    def dial(self, **greeting: str) -> None:
        hello = {"token": TOKEN, "node": "n-1", "session": "one", **greeting}
        self.dialer = Dialer(self.loop, ("127.0.0.1", self.relay.port), hello, self.channel)

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
    loop, port, got = Loop(), free_port("127.0.0.1"), list[dict[str, Any]]()
    channel = Channel(loop, lambda message: None)
    dialer = Dialer(loop, ("127.0.0.1", port), {"token": "t", "node": "n", "session": "s"}, channel)
    channel.send({"early": True})
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not dialer.problem and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dialer.problem
        listener = Listener(loop, "127.0.0.1", port, b"t", {"n": Channel(loop, got.append)})
        while not got and time.monotonic() < deadline:
            loop.after("test", 0.01, lambda: None)
            loop.turn()
        assert got == [{"early": True}]
        listener.close()
    finally:
        dialer.close()
        signal.set_wakeup_fd(-1)


def test_a_name_that_is_not_known_yet() -> None:
    loop = Loop()
    channel = Channel(loop, lambda message: None)
    greeting = {"token": "t", "node": "n", "session": "s"}
    dialer = Dialer(loop, ("no-such-host.invalid", 29499), greeting, channel)
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
            except ConnectionResetError:
                return got
            if not part:
                return got
            got += part
            if take_frame(bytearray(got)):
                return got
    raise AssertionError("neither answered nor closed")


def hello(**keys: object) -> bytes:
    greeting = {"token": TOKEN, "node": "n-1", "session": "one", "got": 0, **keys}
    return frame(HELLO, dumps(greeting).encode())


@pytest.mark.parametrize(
    "data",
    [
        hello(token="wrong"),
        hello(token=None),
        hello(node="n-9"),
        hello(got="many"),
        frame(HELLO, b"[]"),
        frame(HELLO, b"not json"),
        frame(MESSAGE, b"\0" * 8 + b'{"is": "stop"}'),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        frame(HELLO, b"{" * 5000),
        b"\xff" * 5000,
    ],
    ids=["token", "none", "node", "got", "list", "text", "message", "http", "long", "noise"],
)
def test_strangers_hear_nothing(ends: Ends, data: bytes) -> None:
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


def test_a_member_that_talks_nonsense_is_cut_off(ends: Ends) -> None:
    with socket.create_connection(("127.0.0.1", ends.port)) as member:
        member.sendall(hello())
        ends.until(lambda: ends.channels["n-1"].is_up)
        member.sendall(frame(b"?", b""))
        ends.until(lambda: not ends.channels["n-1"].is_up)


def test_silence_breaks_the_connection() -> None:
    """A peer that vanished without a word, its machine with it, sends no end of the connection."""
    loop = Loop()
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
