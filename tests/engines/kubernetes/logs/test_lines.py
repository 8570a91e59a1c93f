"""The lines of a pod's log as data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.engines.kubernetes.logs.lines import (
    FOREIGN,
    Parser,
    batches,
    is_lost,
    is_piece,
    lines_of_pod,
    place_of,
    take,
    to_log_line,
)

TIME = b"2026-11-15T07:10:02.123456Z"
EPOCH = 1794726602.123456


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"0.out 17 " + TIME + b" loss 0.31\n", ("0.out", 17, EPOCH, b"loss 0.31\n")),
        (b"12.err 0 " + TIME + b" \n", ("12.err", 0, EPOCH, b"\n")),
        (b"12.err 0 " + TIME + b"\n", ("12.err", 0, EPOCH, b"\n")),
        (b"0.out~ 3 " + TIME + b" no end\n", ("0.out", 3, EPOCH, b"no end")),
        (b"0.out^ 3 " + TIME + b" a\r|\n", ("0.out", 3, EPOCH, b"a\r\n")),
        (b"0.out~^ 3 " + TIME + b" a\r\r|\n", ("0.out", 3, EPOCH, b"a\r\r")),
        (b"0.out^ 3 " + TIME + b" |\r|\n", ("0.out", 3, EPOCH, b"|\r\n")),
        (b"0.out~ 3 " + TIME + b" cut off", ("0.out", 3, EPOCH, b"cut off")),
        (b"setup.out 1 2026-11-15T07:10:02Z  two blanks\n", ("setup.out", 1, 1794726602.0, b" two blanks\n")),
        (b"node.err 0 " + TIME + b" \xff\x00\r\n", ("node.err", 0, EPOCH, b"\xff\x00\r\n")),
    ],
)
def test_a_line_of_the_launcher(raw: bytes, expected: tuple[str, int, float, bytes]) -> None:
    line = Parser().parse(raw)
    assert tuple(line) == (expected[0], expected[1], pytest.approx(expected[2], abs=1e-6), expected[3], -1)
    assert not is_piece(raw)


@pytest.mark.parametrize(
    ("raw", "start", "data"),
    [
        (b"0.out+0 3 " + TIME + b" Epoch 1: \n", 0, b"Epoch 1: "),
        (b"0.err+17 3 " + TIME + b" 10%\n", 17, b"10%"),
        (b"0.err+17^ 3 " + TIME + b" 10%\r|\n", 17, b"10%\r"),
    ],
)
def test_a_piece_of_a_line_is_no_line(raw: bytes, start: int, data: bytes) -> None:
    piece = Parser().parse(raw)
    assert (piece.seq, piece.start, piece.data) == (3, start, data)
    seen = {piece.key: 3}
    assert is_piece(raw) and not take(piece, seen) and seen == {piece.key: 3}


@pytest.mark.parametrize(
    "raw",
    [
        b"Traceback (most recent call last):\n",
        b"0.log 1 " + TIME + b" x\n",
        b"0.out one " + TIME + b" x\n",
        b"0.out 1 2026-99-99T07:10:02Z x\n",
        b"0.out 1 " + TIME + b"x\n",
        b" 0.out 1 " + TIME + b" x\n",
        b"\n",
        b"",
    ],
)
def test_a_line_of_somebody_else(raw: bytes) -> None:
    assert Parser().parse(raw) == (FOREIGN, -1, 0.0, raw, -1)
    assert not is_piece(raw)


def test_who_is_meant() -> None:
    assert [place_of(key) for key in ("3.out", "3.err", "setup.out", "node.err", FOREIGN)] == [
        (3, "out"), (3, "err"), (-1, "setup"), (-1, "err"), (-1, "err"),
    ]  # fmt: skip


def test_what_the_kubelet_says_when_it_has_no_log() -> None:
    assert is_lost(b"unable to retrieve container logs for containerd://42")
    assert not is_lost(b"unable to retrieve my own logs\n")


@given(text=st.binary(max_size=200).map(lambda data: data.replace(b"\1", b"\n")), sizes=st.lists(st.integers(1, 9)))
def test_lines_are_whole_however_the_bytes_are_cut(text: bytes, sizes: list[int]) -> None:
    chunks, left = [], text
    for size in sizes:
        chunks.append(left[:size])
        left = left[size:]
    chunks.append(left)
    lines = [line for batch in batches(iter(chunks)) for line in batch]
    assert b"".join(lines) == text
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines[:-1])
    unfinished = [line for batch in batches(iter(chunks), is_last=False) for line in batch]
    assert unfinished == [line for line in lines if line.endswith(b"\n")]


def test_what_was_seen_is_skipped_and_strangers_are_told_apart() -> None:
    text = b"".join(b"%d.out %d %s line %d\n" % (rank, seq, TIME, seq) for seq in range(5) for rank in range(2))
    seen = {"0.out": 3}
    found = list(lines_of_pod(iter([text, b"Killed\n"]), seen=seen))
    assert [(line.rank, line.stream, line.data) for line in found] == [
        (1, "out", b"line 0\n"), (1, "out", b"line 1\n"), (1, "out", b"line 2\n"), (0, "out", b"line 3\n"),
        (1, "out", b"line 3\n"), (0, "out", b"line 4\n"), (1, "out", b"line 4\n"), (-1, "err", b"Killed\n"),
    ]  # fmt: skip
    assert found[-1].time == found[0].time == pytest.approx(EPOCH)
    assert seen == {"0.out": 5, "1.out": 5, FOREIGN: 1}


def test_the_attempt_that_a_line_is_marked_with() -> None:
    line = Parser().parse(b"3.out@12~ 7 2026-11-15T07:10:02Z half")
    assert (line.key, line.seq, line.data) == ("3.out@12", 7, b"half")
    shown = to_log_line(line, role="worker", node="worker-3", attempt=4)
    assert (shown.rank, shown.stream, shown.attempt) == (3, "out", 12)
    own = to_log_line(Parser().parse(b"3.out 7 2026-11-15T07:10:02Z x\n"), role="", node="", attempt=4)
    assert own.attempt == 4
    assert Parser().parse(b"3.out@x 7 2026-11-15T07:10:02Z x\n").key == FOREIGN
