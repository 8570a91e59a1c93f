"""Secrets in a stream: no value comes out, however it was cut, and everything else does."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.guards.masking import LEAST, MASK, Masker

SECRETS = ("hf_abcdefgh", "hf_abcdefghijkl", "aaaaaaaab", "line one of a key\nline two of a key\n")


def masked(values: tuple[str, ...], *chunks: bytes) -> bytes:
    masker = Masker(values)
    return b"".join([*map(masker.feed, chunks), masker.finish()])


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"token hf_abcdefgh!\n",), b"token ***!\n"),
        ((b"token hf_abc", b"defgh", b"!\n"), b"token ***!\n"),
        ((b"hf_abcdefgh", b"ijkl\n"), b"***\n"),
        ((b"hf_abcdefghij", b"k!\n"), b"***ijk!\n"),
        ((b"aaaaaaaa", b"aaab"), b"aaa***"),
        ((b"hf_abcdefghhf_abcdefgh",), b"******"),
        ((b"> line one of a key\n> line two of a key\n",), b"> ***\n> ***\n"),
        ((b"ends with hf_",), b"ends with hf_"),
        ((b"ends with hf_abcdef",), b"ends with ***"),
        ((b"", b"\xff\x00nothing\r"), b"\xff\x00nothing\r"),
    ],
)
def test_values_are_masked_wherever_they_are_cut(chunks: tuple[bytes, ...], expected: bytes) -> None:
    assert masked(SECRETS, *chunks) == expected


@pytest.mark.parametrize(
    ("values", "data", "expected"),
    [
        (("abcdefgh", "efghijkl"), b"abcdefghijkl!", b"***!"),
        (("abcdefgh", "efghijkl"), b"abcdefghijk", b"***ijk"),
        (("abcdefgh", "fghijklm"), b"abcdefghfghijklm", b"******"),
        (("abababab",), b"xababababababx", b"x***x"),
        (("abcdabcd",), b"abcdabcdabcdabcd-abcdabcd", b"***-***"),
        (("key-0-key-1-key", "key-1-key-2-key"), b"key-0-key-1-key-2-key", b"***"),
    ],
)
def test_of_values_that_overlap_no_end_is_left(values: tuple[str, ...], data: bytes, expected: bytes) -> None:
    assert masked(values, data) == expected
    for cut in range(len(data)):
        assert masked(values, data[:cut], data[cut:]) == expected
    assert masked(values, *(data[place : place + 1] for place in range(len(data)))) == expected


def by_definition(values: tuple[str, ...], data: bytes) -> bytes:
    """Every byte that is in some occurrence is hidden; of a value that has begun at the end, long enough, too."""
    spans = {(at, at + len(v)) for v in map(str.encode, values) for at in range(len(data)) if data.startswith(v, at)}
    begun = max(n for v in values for n in range(len(v)) if data.endswith(v[:n].encode()))
    spans |= {(len(data) - begun, len(data))} if begun >= LEAST else set()
    told, done = b"", 0
    for start, stop in sorted(spans):
        told += data[done:start] + MASK if start >= done else b""
        done = max(done, stop)
    return told + data[done:]


@given(
    values=st.lists(st.text("ab", min_size=LEAST, max_size=LEAST + 3), min_size=1, max_size=3).map(tuple),
    data=st.text("ab", max_size=40).map(str.encode),
    cuts=st.sets(st.integers(0, 40)),
)
def test_exactly_what_is_in_some_value_is_hidden(values: tuple[str, ...], data: bytes, cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(data)]
    chunks = [data[start:end] for start, end in zip(places, places[1:], strict=False)]
    assert masked(values, *chunks) == by_definition(values, data)


def test_long_values_take_no_longer() -> None:
    """Also where the output has their beginning over and over."""
    masker = Masker(("abcdefgh" + "x" * 65536,))
    began = time.process_time()
    for _ in range(20):
        masker.feed(b"abcdefgh" * 8192)
    assert time.process_time() - began < 1.0


def test_short_values_are_not() -> None:
    assert not Masker(("1", "true", "x" * (LEAST - 1)))
    assert masked(("1", "true"), b"1 is true\n") == b"1 is true\n"
    assert Masker(("x" * LEAST,))


def test_what_cannot_be_a_value_is_given_at_once() -> None:
    masker = Masker(SECRETS)
    assert masker.feed(b"Epoch 1: ") == b"Epoch 1: "
    assert masker.feed(b"password: h") == b"password: "
    assert masker.feed(b"ello\n") == b"hello\n"


@given(
    parts=st.lists(st.sampled_from([*(s.encode() for s in SECRETS), b"hf_", b"a", b"\n", b"key", b"line one"])),
    cuts=st.lists(st.integers(0, 300)),
)
def test_no_value_comes_out_and_cuts_change_nothing(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:end] for start, end in zip(places, places[1:], strict=False)]
    whole = masked(SECRETS, *chunks)
    assert not any(secret.encode() in whole for secret in SECRETS)
    assert whole == masked(SECRETS, data)
    assert len(whole.replace(MASK, b"")) <= len(data)
