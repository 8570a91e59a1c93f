"""Reading the launcher's log files from bytes and index, without any run."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.runs import LogLine, LogQuery
from longboat.engines.shared.files import blocks_from_end
from longboat.engines.shared.logfiles import LineTimes, Reader, Source, last_lines, sources


def put(path: Path, *chunks: tuple[float, bytes]) -> None:
    """Append what arrived, when."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for when, data in chunks:
        with open(path, "ab") as log, open(f"{path}.idx", "ab") as index:
            log.write(data)
            index.write(struct.pack("<QQ", log.tell(), int(when * 1e9)))


def source(path: Path) -> Source:
    return Source(path=str(path), role="worker", node="worker-0", rank=0, stream="out", attempt=0)


def test_lines_have_the_time_of_their_last_byte(tmp_path: Path) -> None:
    log = tmp_path / "0.out"
    put(log, (1, b"a\nb"), (2, b"c\n"), (3, b"d\n"))
    assert [(line.time, line.data) for line in Reader(source(log)).lines(is_last=True)] == [
        (1, b"a\n"), (2, b"bc\n"), (3, b"d\n"),
    ]  # fmt: skip


def test_bytes_after_the_index_are_read_too(tmp_path: Path) -> None:
    """A launcher was killed between data and index."""
    log = tmp_path / "0.out"
    put(log, (1, b"a\n"))
    with open(log, "ab") as file:
        file.write(b"b\n")
    lines = list(Reader(source(log)).lines(is_last=True))
    assert [line.data for line in lines] == [b"a\n", b"b\n"]
    assert lines[1].time >= 1


def test_half_a_record_at_the_end_of_the_index(tmp_path: Path) -> None:
    log = tmp_path / "0.out"
    put(log, (1, b"a\n"))
    with open(f"{log}.idx", "ab") as index:
        index.write(b"\1\2\3")
    times = LineTimes(str(log))
    times.refresh()
    assert times.at(2) == 1


def test_an_unfinished_line_waits_for_its_end(tmp_path: Path) -> None:
    log = tmp_path / "0.out"
    reader = Reader(source(log))
    assert list(reader.lines(is_last=False)) == []
    put(log, (1, b"beg"))
    assert list(reader.lines(is_last=False)) == []
    put(log, (2, b"in\nend"))
    assert [line.data for line in reader.lines(is_last=False)] == [b"begin\n"]
    assert [line.data for line in reader.lines(is_last=True)] == [b"end"]
    assert list(reader.lines(is_last=True)) == []


@given(
    chunks=st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\1", b"\n")), max_size=12), data=st.data()
)
def test_whatever_arrives_however_it_is_cut_nothing_is_lost(tmp_path_factory, chunks, data) -> None:  # type: ignore[no-untyped-def]
    log = tmp_path_factory.mktemp("log") / "0.out"
    reader = Reader(source(log))
    seen: list[LogLine] = []
    for number, chunk in enumerate(chunks):
        put(log, (number, chunk))
        if data.draw(st.booleans()):
            seen += reader.lines(is_last=False)
    seen += reader.lines(is_last=True)
    assert b"".join(line.data for line in seen) == b"".join(chunks)
    assert all(line.data.endswith(b"\n") for line in seen[:-1])
    assert all(line.data.count(b"\n") <= 1 and line.data for line in seen)


@pytest.mark.parametrize(
    ("since", "expected"),
    [(0, ["a", "bc", "d"]), (1.5, ["bc", "d"]), (2, ["bc", "d"]), (2.5, ["d"]), (3, ["d"]), (9, [])],
)
def test_since(tmp_path: Path, since: float, expected: list[str]) -> None:
    log = tmp_path / "0.out"
    put(log, (1, b"a\nb"), (2, b"c\n"), (3, b"d\n"))
    reader = Reader(source(log))
    reader.skip_to(LogQuery(since=since))
    assert [line.data.decode().strip() for line in reader.lines(is_last=True)] == expected


def attempt_with(tmp_path: Path) -> Path:
    folder = tmp_path / "attempts" / "0"
    put(folder / "worker-0/logs/0.out", (1, b"0 first\n"), (4, b"0 last\n"))
    put(folder / "worker-0/logs/0.err", (2, b"0 warns\n"))
    put(folder / "my-ps-1/logs/1.out", (3, b"1 middle\n"))
    put(folder / "worker-0/logs/setup.out", (0.5, b"installs\n"))
    return folder


def test_which_files_are_logs_of_whom(tmp_path: Path) -> None:
    found = sources(attempt_with(tmp_path), 0, LogQuery())
    assert sorted((s.role, s.node, s.rank, s.stream) for s in found) == [
        ("my-ps", "my-ps-1", 1, "out"),
        ("worker", "worker-0", -1, "setup"),
        ("worker", "worker-0", 0, "err"),
        ("worker", "worker-0", 0, "out"),
    ]


def test_the_last_lines_are_per_rank_over_attempts() -> None:
    def line(rank: int, text: bytes, attempt: int = 0, node: str = "worker-0") -> LogLine:
        return LogLine(role="worker", node=node, rank=rank, stream="out", time=0, attempt=attempt, data=text)

    lines = [
        line(0, b"a"),
        line(1, b"b"),
        line(0, b"c"),
        line(0, b"d", 1),
        line(-1, b"s0"),
        line(-1, b"s1", 0, "worker-1"),
    ]
    assert [each.data for each in last_lines(iter(lines), 2)] == [b"b", b"c", b"d", b"s0", b"s1"]
    assert [each.data for each in last_lines(iter(lines), 1)] == [b"b", b"d", b"s0", b"s1"]
    assert last_lines(iter(lines), 0) == []


def test_pieces_of_an_unfinished_line_come_at_once(tmp_path: Path) -> None:
    log = tmp_path / "0.out"
    reader = Reader(source(log), LogQuery(follow=True, pieces=True))
    put(log, (1, b"Epoch 1: "))
    assert [line.data for line in reader.lines(is_last=False)] == [b"Epoch 1: "]
    assert list(reader.lines(is_last=False)) == []
    put(log, (2, b"done\nnext"))
    assert [line.data for line in reader.lines(is_last=False)] == [b"done\n", b"next"]


@pytest.mark.parametrize("end", [b"", b"unfinished"])
@pytest.mark.parametrize("count", [0, 1, 3, 5, 50, 5000])
def test_the_last_lines_are_read_from_the_end(tmp_path: Path, count: int, end: bytes) -> None:
    log = tmp_path / "0.out"
    chunks = [(float(n), b"%d " % n + b"x" * (n * 37 % 200) + b"\n") for n in range(1, 2001)]
    put(log, *chunks, (2001.0, end))
    every = list(Reader(source(log)).lines(is_last=True))
    query = LogQuery(tail=count)
    reader = Reader(source(log), query)
    reader.skip_to(query)
    lines = last_lines(reader.lines(is_last=True), count)
    assert lines == (every[-count:] if count else [])
    if count <= 50:
        assert reader._times._first > 1900, "neither log nor index is read from the beginning"


@pytest.mark.parametrize("end", [b"", b"unfinished 7"])
@pytest.mark.parametrize("count", [0, 1, 3, 50, 5000])
@pytest.mark.parametrize("block", [64, 1 << 20])
def test_the_last_lines_that_match_are_read_from_the_end(
    tmp_path: Path, count: int, end: bytes, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longboat.engines.shared.files._BLOCK", block)
    log = tmp_path / "0.out"
    put(log, *[(float(n), b"%d " % n + b"x" * (n * 37 % 200) + b"\n") for n in range(1, 2001)], (2001.0, end))
    query = LogQuery(grep=("7( |$)",), tail=count)
    every = list(Reader(source(log), query).lines(is_last=True))
    assert len(every) == 200 + bool(end)
    reader = Reader(source(log), query)
    reader.skip_to(query)
    assert last_lines(reader.lines(is_last=True), count) == (every[-count:] if count else [])
    if count <= 50:
        assert reader._times._first > 1400, "neither log nor index is read from the beginning"


def test_an_endless_line_is_searched_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes in memory does not grow with it."""
    monkeypatch.setattr("longboat.engines.shared.files._BLOCK", 8)
    path = tmp_path / "log"
    path.write_bytes(b"a\n" + b"x" * 100 + b"\nb\n")
    blocks = list(blocks_from_end(str(path), 105, most_line=20))
    assert max(len(line) for _, lines in blocks for line in lines) <= 20 + 8
    text = path.read_bytes()
    assert all(text.startswith(lines[0], start) for start, lines in blocks)
    assert b"".join(line for _, lines in reversed(blocks) for line in lines) == text.replace(b"\n", b"")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (LogQuery(grep=("loss",)), [b"loss 1\n", b"loss 2\n"]),
        (LogQuery(grep=("LOSS", "^b")), [b"b\n"]),
        (LogQuery(grep=("LOSS",), ignore_case=True), [b"loss 1\n", b"loss 2\n"]),
        (LogQuery(grep=("loss",), invert_match=True), [b"b\n", b"end"]),
        (LogQuery(grep=(r"\d$",), tail=1), [b"loss 2\n"]),
        (LogQuery(grep=("\u00e9",)), []),
    ],
)
def test_only_lines_that_match(tmp_path: Path, query: LogQuery, expected: list[bytes]) -> None:
    log = tmp_path / "0.out"
    put(log, (1, b"loss 1\nb\nlo"), (2, b"ss 2\nend"))
    reader = Reader(source(log), query)
    reader.skip_to(query)
    lines = list(reader.lines(is_last=True))
    assert [line.data for line in (lines if query.tail is None else last_lines(iter(lines), query.tail))] == expected
