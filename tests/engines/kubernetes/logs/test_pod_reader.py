"""A pod's log over streams that break anywhere: every line once, in order. The kubelet's side is data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.engines.kubernetes.logs.lines import LogGap, PodLine
from longboat.engines.kubernetes.logs.pod_reader import PodLog
from longboat.kubeapi.errors import Forbidden, Invalid, ObjectNotFound, Unreachable

START = 1794726600


def said(rank: int, seq: int, second: float, text: str = "") -> tuple[float, bytes]:
    stamp = f"2026-11-15T07:{10 + int(second) // 60:02d}:{int(second) % 60:02d}.{int(second % 1 * 1e6):06d}Z"
    return second, f"{rank}.out {seq} {stamp} {text or f'{rank}/{seq}'}\n".encode()


class Kubelet:
    """A log as the kubelet serves it: lines with their times; `breaks` says after how many bytes each stream breaks."""

    def __init__(self, lines: list[tuple[float, bytes]], breaks: list[int], chunk: int = 50) -> None:
        self.lines = lines
        self.breaks = breaks
        self.chunk = chunk
        self.opened: list[float | None] = []

    @contextmanager
    def open(self, *, follow: bool, since: float | None) -> Iterator[Iterator[bytes]]:
        self.opened.append(since)
        floor = -1.0 if since is None else int(since) - START
        text = b"".join(data for when, data in self.lines if when >= floor)
        yield self.stream(text, self.breaks.pop(0) if self.breaks else None)

    def stream(self, text: bytes, limit: int | None) -> Iterator[bytes]:
        for place in range(0, len(text), self.chunk):
            piece = text[place : place + self.chunk]
            if limit is not None and place + len(piece) > limit:
                yield text[place:limit]
                raise Unreachable("cut")
            yield piece


class Source:
    """A pod whose container has ended, and whose log lacks nothing."""

    def __init__(self, opening: Any, fill: Any = None) -> None:
        self.open = opening
        self.fill = fill or self.lacks_nothing

    def lacks_nothing(self, gap: LogGap) -> Iterator[PodLine]:
        raise AssertionError(f"nothing is missing: {gap}")

    def close(self) -> None:
        raise AssertionError("nobody stops it")

    def has_ended(self) -> bool:
        return True

    def has_files(self, gap: LogGap | None) -> bool:
        return False

    def files(self, seen: dict[str, int], *, follow: bool) -> Iterator[bytes]:
        raise AssertionError("the pod has ended")

    def rest(self, seen: dict[str, int]) -> Iterator[PodLine]:
        return iter(())

    def last(self, seen: dict[str, int]) -> Iterator[PodLine]:
        return iter(())


def log_of(kubelet: Kubelet, *, fill: Any = None, **more: Any) -> PodLog:
    return PodLog(Source(kubelet.open, fill), **more)


def read(log: PodLog, *, follow: bool = True) -> list[PodLine]:
    return [line for batch in log.read(follow=follow) for line in batch]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.engines.kubernetes.logs.pod_reader.SHORT_S", 0.0)


@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    breaks=st.lists(st.integers(0, 900), max_size=6),
    pace=st.sampled_from([0.0, 0.3, 2.0]),
    chunk=st.integers(1, 200),
)
def test_however_it_breaks_nothing_is_lost_or_doubled(
    counts: list[int], breaks: list[int], pace: float, chunk: int
) -> None:
    everything = [(rank, seq) for seq in range(max(counts)) for rank, count in enumerate(counts) if seq < count]
    lines = [said(rank, seq, number * pace) for number, (rank, seq) in enumerate(everything)]
    found = read(log_of(Kubelet(lines, breaks, chunk)))
    assert [(line.key, line.seq, line.data) for line in found] == [
        (f"{rank}.out", seq, f"{rank}/{seq}\n".encode()) for rank, seq in everything
    ]


def test_it_goes_on_shortly_before_where_it_broke() -> None:
    lines = [said(0, seq, seq) for seq in range(100)]
    kubelet = Kubelet(lines, [3000])
    assert len(read(log_of(kubelet))) == 100
    assert kubelet.opened[0] is None
    assert START < (kubelet.opened[1] or 0) < START + 100


def test_what_the_log_no_longer_has_is_asked_for_once() -> None:
    asked: list[LogGap] = []

    def fill(gap: LogGap) -> Iterator[PodLine]:
        asked.append(gap)
        yield from (PodLine(gap.key, gap.first + n, gap.time, b"elsewhere\n") for n in range(gap.missing))

    lines = [said(0, 5, 1), said(0, 6, 2), said(1, 0, 3), said(0, 9, 4)]
    found = read(log_of(Kubelet(lines, [60, 100]), fill=fill))
    assert [(line.key, line.seq) for line in found] == [
        *(("0.out", n) for n in range(7)), ("1.out", 0), *(("0.out", n) for n in (7, 8, 9)),
    ]  # fmt: skip
    assert [(gap.key, gap.first, gap.missing) for gap in asked] == [("0.out", 0, 5), ("0.out", 7, 2)]


def test_a_stream_that_begins_within_a_long_line_is_not_believed() -> None:
    """The kubelet keeps long lines in pieces with a time each: a stream from the middle may begin with half a line."""
    whole = said(0, 1, 1.0, "x" * 500)[1]
    lines = [said(0, 0, 0.0), (1.0, whole[:300]), (9.0, whole[300:]), said(0, 2, 9.5)]
    kubelet = Kubelet(lines, [len(lines[0][1]) + 310])
    log = log_of(kubelet, time=START + 11.0)
    log.seen["0.out"] = 1
    found = read(log)
    assert [(line.seq, len(line.data)) for line in found] == [(1, 501), (2, 4)]


def test_a_launcher_that_crashes_is_heard_once() -> None:
    lines = [said(0, 0, 0), (1, b"Traceback:\n"), (2, b"  boom\n"), (3, b"no end")]
    found = read(log_of(Kubelet(lines, [60, 75, 80], chunk=7)))
    assert [line.data for line in found] == [b"0/0\n", b"Traceback:\n", b"  boom\n", b"no end"]
    assert {line.time for line in found} == {START}


def test_a_pod_that_is_gone() -> None:
    def gone(*, follow: bool, since: float | None) -> object:
        raise ObjectNotFound("pods not found")

    log = PodLog(Source(gone))
    assert read(log) == [] and log.is_gone


def test_a_log_whose_file_is_gone() -> None:
    log = log_of(Kubelet([(0, b"unable to retrieve container logs for containerd://1234")], []))
    assert read(log) == [] and log.is_gone


def test_a_container_that_has_not_started_is_waited_for_only_by_a_follower() -> None:
    waits = iter([True, True, False])

    class Waiting(Kubelet):
        @contextmanager
        def open(self, *, follow: bool, since: float | None) -> Iterator[Iterator[bytes]]:
            if next(waits, False):
                raise Invalid("container is waiting to start: ContainerCreating")
            with super().open(follow=follow, since=since) as chunks:
                yield chunks

    assert [line.seq for line in read(log_of(Waiting([said(0, 0, 0)], [])))] == [0]
    waits = iter([True])
    with pytest.raises(Invalid):
        read(log_of(Waiting([said(0, 0, 0)], [])), follow=False)


def test_who_may_not_read_logs_is_told_at_once() -> None:
    def forbidden(*, follow: bool, since: float | None) -> object:
        raise Forbidden("pods/log is forbidden")

    log = PodLog(Source(forbidden))
    with pytest.raises(Forbidden):
        read(log)


def test_a_follower_tries_for_as_long_as_it_takes() -> None:
    assert len(read(log_of(Kubelet([said(0, 0, 0)], [0] * 1100)))) == 1


class Restarted(Kubelet):
    """An API server that refuses everybody for a while, after the first stream broke."""

    def __init__(self, lines: list[tuple[float, bytes]], refusals: int) -> None:
        super().__init__(lines, [120])
        self.refusals = refusals

    @contextmanager
    def open(self, *, follow: bool, since: float | None) -> Iterator[Iterator[bytes]]:
        if self.opened and self.refusals:
            self.refusals -= 1
            raise Forbidden("pods/log is forbidden")
        with super().open(follow=follow, since=since) as chunks:
            yield chunks


@pytest.mark.parametrize("follow", [True, False])
def test_a_server_that_has_not_read_its_roles_yet_is_asked_again(follow: bool) -> None:
    assert len(read(log_of(Restarted([said(0, seq, seq) for seq in range(10)], 5)), follow=follow)) == 10


def test_a_right_that_was_taken_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.kubeapi.refusals.SYNC_S", 0.05)
    with pytest.raises(Forbidden):
        read(log_of(Restarted([said(0, seq, seq) for seq in range(10)], 10**9)))


def test_a_finished_log_that_never_comes_is_given_up() -> None:
    with pytest.raises(Unreachable):
        read(log_of(Kubelet([said(0, 0, 0)], [3] * 100)), follow=False)


def test_a_node_that_takes_long_to_be_silent_is_given_up_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.engines.kubernetes.logs.pod_reader.GIVE_UP_S", -1.0)
    kubelet = Kubelet([said(0, 0, 0)], [3] * 100)
    with pytest.raises(Unreachable):
        read(log_of(kubelet), follow=False)
    assert len(kubelet.opened) == 1


def test_a_file_that_begins_within_a_line_does_not_speak_with_a_strangers_voice() -> None:
    half = (0.0, said(0, 4, 0.0)[1][9:])
    source = Source(Kubelet([half, said(0, 5, 1), said(0, 6, 2)], []).open, lambda gap: iter(()))
    assert [(line.key, line.seq) for line in read(PodLog(source))] == [("0.out", 5), ("0.out", 6)]
    crash = [(0.0, b"python3: not found\n")]
    assert [line.data for line in read(log_of(Kubelet(crash, [])))] == [b"python3: not found\n"]
    assert [line.data for line in read(log_of(Kubelet([*crash, said(0, 0, 1)], [])))][0] == b"python3: not found\n"


def test_streams_that_were_rotated_away_whole_are_asked_for() -> None:
    class Rotated(Source):
        def rest(self, seen: dict[str, int]) -> Iterator[PodLine]:
            for key, count in (("0.out", 8), ("1.out", 2)):
                yield from (PodLine(key, n, 0.0, b"elsewhere\n") for n in range(seen.get(key, 0), count))

        def last(self, seen: dict[str, int]) -> Iterator[PodLine]:
            yield from self.rest(seen)
            yield PodLine("2.err", -1, 0.0, b"3 lines are nowhere\n")

    def fill(gap: LogGap) -> Iterator[PodLine]:
        yield from (PodLine(gap.key, gap.first + n, gap.time, b"filled\n") for n in range(gap.missing))

    log = PodLog(Rotated(Kubelet([said(0, 5, 1), said(0, 6, 2)], []).open, fill))
    assert sorted((line.key, line.seq) for line in read(log)) == [
        *(("0.out", n) for n in range(8)), ("1.out", 0), ("1.out", 1), ("2.err", -1),
    ]  # fmt: skip
    assert log.seen == {"0.out": 8, "1.out": 2}, "a line that only tells of others is not counted"
    empty = PodLog(Rotated(Kubelet([], []).open))
    assert len(read(empty, follow=False)) == 11


class Living(Source):
    """A pod that lives, whose launcher has files. `breaks` says after how many bytes each reading of them breaks."""

    def __init__(self, opening: Any, lines: list[tuple[float, bytes]], breaks: list[int] | None = None) -> None:
        super().__init__(opening)
        self.text = b"".join(data for _, data in lines)
        self.breaks = breaks or []
        self.asked: list[dict[str, int]] = []
        self.is_over = False

    def has_files(self, gap: LogGap | None) -> bool:
        return not self.is_over

    def files(self, seen: dict[str, int], *, follow: bool) -> Iterator[bytes]:
        self.asked.append(seen)
        limit = self.breaks.pop(0) if self.breaks else None
        for line in self.text.splitlines(keepends=True):
            key, seq = line.split()[:2]
            if int(seq) >= seen.get(key.decode(), 0):
                limit = None if limit is None else limit - len(line)
                if limit is not None and limit < 0:
                    raise Unreachable("cut")
                yield line
        yield b"\n"
        self.is_over = True


@pytest.mark.parametrize("breaks", [[], [100], [0, 100, 0, 200]])
def test_what_was_rotated_away_comes_from_the_files_of_a_pod_that_lives(breaks: list[int]) -> None:
    everything = [said(rank, seq, seq) for seq in range(40) for rank in (0, 1)]
    source = Living(Kubelet(everything[50:], []).open, everything, breaks)
    found = read(PodLog(source))
    for rank in (0, 1):
        assert [line.seq for line in found if line.key == f"{rank}.out"] == list(range(40))


def test_a_fast_log_is_read_from_the_files_before_anything_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.engines.kubernetes.logs.pod_reader.RUSH_BYTES", 20)
    everything = [said(0, seq, seq) for seq in range(40)]
    source = Living(Kubelet(everything[:20], []).open, everything)
    assert [line.seq for line in read(PodLog(source))] == list(range(40))
    (asked,) = source.asked
    assert 0 < asked["0.out"] < 20


def test_files_that_never_come_are_not_asked_for_without_end() -> None:
    everything = [said(0, seq, seq) for seq in range(10)]
    source = Living(Kubelet(everything[5:], []).open, everything, [0] * 1000)
    source.fill = lambda gap: iter([PodLine(gap.key, -1, 0.0, b"5 lines are nowhere\n")])
    assert [line.seq for line in read(PodLog(source))] == [-1, 5, 6, 7, 8, 9]
    assert len(source.asked) == 5


@pytest.mark.parametrize("follow", [True, False])
def test_who_may_not_read_logs_may_be_allowed_to_exec(follow: bool) -> None:
    def forbidden(*, follow: bool, since: float | None) -> object:
        raise Forbidden("pods/log is forbidden")

    everything = [said(0, seq, seq) for seq in range(10)]
    assert len(read(PodLog(Living(forbidden, everything, [100])), follow=follow)) == 10


def in_pieces(rank: int, seq: int, second: float, parts: list[str]) -> list[tuple[float, bytes]]:
    """A line as the launcher writes it while it is not finished, and then whole."""
    lines, start = [], 0
    for part in parts[:-1]:
        when, data = said(rank, seq, second, part)
        lines.append((when, data.replace(b".out ", b".out+%d " % start, 1)))
        start += len(part)
    return [*lines, said(rank, seq, second, "".join(parts))]


PARTS = st.lists(st.text("ab%\r", min_size=1, max_size=8).filter(lambda text: text[-1] != "\r"), min_size=1, max_size=4)


@given(
    written=st.lists(PARTS, max_size=8),
    breaks=st.lists(st.integers(0, 900), max_size=6),
    pace=st.sampled_from([0.0, 0.7, 3.0]),
    chunk=st.integers(1, 200),
    pieces_since=st.sampled_from([None, 0.0]),
)
def test_pieces_of_unfinished_lines_make_up_these_lines_however_it_breaks(
    written: list[list[str]], breaks: list[int], pace: float, chunk: int, pieces_since: float | None
) -> None:
    lines = [line for seq, parts in enumerate(written) for line in in_pieces(0, seq, seq * pace, parts)]
    found = read(log_of(Kubelet(lines, breaks, chunk), pieces_since=pieces_since))
    assert b"".join(line.data for line in found) == b"".join(f"{''.join(parts)}\n".encode() for parts in written)
    expected = sum(len(parts) if pieces_since is not None else 1 for parts in written)
    assert len(found) == expected, "a piece is given as soon as it is there"


def test_an_unfinished_line_is_given_before_its_end_and_not_again_when_the_rest_comes_from_elsewhere() -> None:
    *pieces, _ = in_pieces(0, 0, 1, ["Epoch 1: ", "10% ", "done"])
    gap = [PodLine("0.out", 0, 0.0, b"Epoch 1: 10% done\n"), PodLine("0.out", 1, 0.0, b"filled\n")]
    log = log_of(Kubelet([*pieces, said(0, 2, 5)], []), fill=lambda _: iter(gap), pieces_since=0.0)
    assert [line.data for line in read(log)] == [b"Epoch 1: ", b"10% ", b"done\n", b"filled\n", b"0/2\n"]
    vanished = log_of(Kubelet(pieces, []), pieces_since=0.0)
    assert [line.data for line in read(vanished)] == [b"Epoch 1: ", b"10% "]
    assert [line.data for line in vanished.unshown(gap)] == [b"done\n", b"filled\n"]


def test_whoever_joins_within_an_unfinished_line_reads_its_beginning_from_the_files() -> None:
    *pieces, whole = in_pieces(0, 0, 1, ["Epoch 1: ", "10% ", "20% ", "done"])

    class Feeding(Living):
        def files(self, seen: dict[str, int], *, follow: bool) -> Iterator[bytes]:
            yield said(0, 0, 1, "Epoch 1: 10% 20% ")[1].replace(b".out ", b".out+0 ", 1)
            yield whole[1]
            self.is_over = True

    source = Feeding(Kubelet(pieces[1:], []).open, [])
    assert [line.data for line in read(PodLog(source, pieces_since=0.0))] == [b"Epoch 1: 10% 20% ", b"done\n"]
    old = PodLog(Source(Kubelet([*pieces, whole], []).open), pieces_since=START + 5.0)
    assert [line.data for line in read(old)] == [b"Epoch 1: 10% 20% done\n"], "pieces that are older are not asked for"
