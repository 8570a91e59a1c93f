"""What node 0 answers to a greeting, by its attempt, its session, and whether it is a new launcher: a table."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from longboat.launcher.gang.channel import HELLO, LATER, REFUSED, WELCOME
from longboat.launcher.gang.handshake import FRAME, LINE, frame, proof
from longboat.launcher.gang.messages import told_of, under_way
from longboat.launcher.node.jsonfiles import dumps, loads
from tests.launcher.gang.test_channel import TOKEN, Ends

UNDER_WAY: dict[str, Any] = {
    "attempt": 2,
    "ended": [
        {"attempt": 0, "exit_code": 5, "cause": "exit", "running": 1.5, "ended": 2.5, "began": None},
        {"attempt": 1, "exit_code": 208, "cause": "preemption", "replaced": ["n-1"]},
    ],
}


@pytest.fixture
def ends() -> Iterator[Ends]:
    with contextlib.closing(Ends()) as made:
        made.listener.under_way = UNDER_WAY
        made.listener.replaces = True
        yield made


def answer(ends: Ends, **greeting: Any) -> tuple[bytes, bytes]:
    """Kind and content of the first frame that comes back; empty where node 0 hangs up."""
    hello = {"node": "n-1", "session": "two", "got": 0, **greeting}
    with socket.create_connection(("127.0.0.1", ends.port)) as end:
        end.sendall(proof(TOKEN, LINE) + frame(HELLO, dumps(hello).encode()))
        end.setblocking(False)
        data = b""
        for _ in range(200):
            ends.turns(1)
            with contextlib.suppress(BlockingIOError):
                part = end.recv(65536)
                data += part
                if part == b"":
                    break
            if len(data) >= FRAME.size:
                break
    return data[:1], data[FRAME.size :]


@pytest.mark.parametrize(
    ("greeting", "kind", "strangers"),
    [
        ({"attempt": 2, "new": False}, WELCOME, []),
        ({}, WELCOME, []),
        ({"attempt": 0, "new": True}, LATER, []),
        ({"attempt": 1, "new": True}, LATER, []),
        ({"attempt": 0, "new": False}, REFUSED, []),
        ({"attempt": 0, "new": "yes"}, REFUSED, []),
        ({"attempt": 3, "new": False}, b"", []),
        ({"attempt": -1}, b"", []),
        ({"attempt": 1e9}, b"", []),
        ({"attempt": "2"}, b"", []),
    ],
)
def test_while_the_name_is_free(ends: Ends, greeting: dict[str, Any], kind: bytes, strangers: list[str]) -> None:
    seen: list[str] = []
    ends.listener.on_stranger = seen.append
    told, content = answer(ends, **greeting)
    assert (told, seen) == (kind, strangers)
    if kind == LATER:
        assert under_way(loads(content.decode())) == UNDER_WAY
    assert ends.channels["n-1"].is_up == (kind == WELCOME)


@pytest.mark.parametrize(
    ("greeting", "kind", "is_given_up"),
    [
        ({"attempt": 0, "new": True}, b"", True),
        ({"attempt": 2, "new": False}, REFUSED, False),
        ({"attempt": 0, "new": False}, REFUSED, False),
    ],
    ids=["a new pod", "one that claims to be a member", "one that was given up"],
)
def test_while_a_member_has_the_name(ends: Ends, greeting: dict[str, Any], kind: bytes, is_given_up: bool) -> None:
    """Only a new pod displaces it, for its Job makes one only when the other is gone."""
    seen: list[str] = []
    ends.listener.on_stranger = seen.append
    ends.dial(attempt=2)  # type: ignore[arg-type]
    ends.until(lambda: ends.channel.is_up)
    assert answer(ends, **greeting)[0] == kind
    assert seen == (["n-1"] if is_given_up else [])
    assert ends.channels["n-1"].is_up, "its connection is its own"


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": -1},
        {"attempt": None},
        {"ended": None},
        {"ended": [3]},
        {"ended": [{"attempt": "x"}]},
        {"ended": [{"attempt": 0, "message": 7}]},
        {"ended": [{"attempt": 0, "replaced": "n-1"}]},
        {"ended": [{"attempt": 0, "replaced": [1]}]},
        {"ended": [{"attempt": 0, "running": "soon"}]},
        {"ended": [{"attempt": 0, "ended": 1e40}]},
        {"ended": [{"attempt": 0, "spares": ["n-1"]}]},
        {"places": ["n-1"]},
        {"places": {"n-1": 7}},
    ],
)
def test_what_a_new_pod_does_not_believe(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        under_way({**UNDER_WAY, **change})


def test_a_new_pod_is_answered_as_the_node_that_it_is_to_play(ends: Ends) -> None:
    """It knows only what it was made as; one of the attempt under way knows its node."""
    later: list[str] = []
    ends.listener.on_later = later.append
    ends.listener.under_way = {**UNDER_WAY, "places": {"n-2": "n-1", "n-1": "n-2"}}
    kind, content = answer(ends, node="n-2", pod="n-2", attempt=0, new=True)
    assert (kind, later) == (LATER, ["n-1"]) and under_way(loads(content.decode()))["places"]["n-2"] == "n-1"
    assert answer(ends, node="n-1", pod="n-2", attempt=1, new=True)[0] == LATER, "a spare of the attempt before"
    assert later == ["n-1", "n-1"]
    assert answer(ends, node="n-1", pod="n-2", attempt=2, new=True)[0] == WELCOME
    assert ends.channels["n-1"].is_up and not ends.channels["n-2"].is_up
    for pod in ("nobody", 7, None, ["n-1"]):
        assert answer(ends, node="n-9", pod=pod, attempt=0, new=True) == (b"", b"")


def test_of_many_attempts_a_new_launcher_is_told_the_last() -> None:
    """More than a socket takes at once would come torn, again and again: the new pod would never join."""
    ended = [{"attempt": number, "exit_code": 5, "cause": "exit", "message": "\u6f22" * 200} for number in range(1000)]
    told = told_of({"ended": ended})
    assert told and told == ended[-len(told) :] and len(dumps(told)) < 20_000
    assert told_of({"ended": ended[:3]}) == ended[:3] and told_of({}) == []
