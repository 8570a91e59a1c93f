"""Frames: written, masked, cut anywhere and put together again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.kubeapi.errors import Unreachable
from longboat.kubeapi.streams.websocket import BINARY, PING, FrameParser, frame, mask


def from_server(opcode: int, content: bytes, *, is_last: bool = True) -> bytes:
    """Servers do not mask."""
    first, size = (0x80 if is_last else 0) | opcode, len(content)
    if size < 126:
        return struct.pack("!BB", first, size) + content
    if size < 1 << 16:
        return struct.pack("!BBH", first, 126, size) + content
    return struct.pack("!BBQ", first, 127, size) + content


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_masking_twice_changes_nothing(content: bytes, key: bytes) -> None:
    masked = mask(content, key)
    assert masked == bytes(byte ^ key[at % 4] for at, byte in enumerate(content))
    assert mask(masked, key) == content


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 100_000])
def test_what_we_send_is_one_masked_frame(size: int) -> None:
    sent = frame(BINARY, b"x" * size)
    assert sent[0] == 0x80 | BINARY
    assert sent[1] & 0x80
    start = {126: 4, 127: 10}.get(sent[1] & 0x7F, 2)
    assert mask(sent[start + 4 :], sent[start : start + 4]) == b"x" * size


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, BINARY, PING]), st.binary(max_size=200))), st.data())
def test_frames_survive_any_cut(messages: list[tuple[bool, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(from_server(opcode, content, is_last=is_last) for is_last, opcode, content in messages)
    frames, found = FrameParser(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        frames.feed(stream[:cut])
        stream = stream[cut:]
        while (one := frames.next()) is not None:
            found.append(one)
    assert found == messages


@pytest.mark.parametrize("size", [126, 65535, 65536, 1 << 20])
def test_large_frames_are_read(size: int) -> None:
    frames = FrameParser()
    frames.feed(from_server(BINARY, b"y" * size))
    assert frames.next() == (True, BINARY, b"y" * size)


@pytest.mark.parametrize("bad", [b"\xf2\x00", b"\x82\x81abcd", b"\x82\x7f" + b"\xff" * 8])
def test_what_is_no_frame_is_refused(bad: bytes) -> None:
    frames = FrameParser()
    frames.feed(bad)
    with pytest.raises(Unreachable):
        frames.next()
