"""The log of one node against the launcher's last words, which tell how many lines each stream has. Copies are data."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Job, Retries, Role
from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.logs.lines import LogGap, PodLine
from longboat.engines.kubernetes.logs.merge import RunLogs
from longboat.engines.kubernetes.logs.node_reader import COPIES, GivenLines, NodeLog
from longboat.engines.kubernetes.observe.snapshot import PodView
from tests.engines.kubernetes.run_samples import NOW, ended, record

STAMP = "2026-11-15T07:10:02.123456Z"


class Stream(io.BytesIO):
    def __iter__(self) -> Any:
        return iter([self.read()])


class Cluster:
    """Has the newest file of a log that was rotated."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def now(self) -> float:
        return NOW

    def log(self, pod: str, **_: object) -> Stream:
        return Stream("".join(f"{key} {STAMP} text\n" for key in self.lines).encode())


class Copies:
    """What the storage has, and how often it was asked."""

    def __init__(self, **counts: int) -> None:
        self.counts = {key.replace("_", "."): count for key, count in counts.items()}
        self.asked = 0

    def fill(self, gap: LogGap, *_: object) -> Iterator[PodLine]:
        return (PodLine(gap.key, gap.first + number, gap.time, b"kept\n") for number in range(gap.missing))

    def others(self, seen: dict[str, int], *_: object) -> Iterator[PodLine]:
        self.asked += 1
        for key, count in self.counts.items():
            for number in range(seen.get(key, 0), count):
                seen[key] = number + 1
                yield PodLine(key, number, 0.0, b"kept\n")


def pod_with(lines: dict[str, int] | None, *, lasted_s: float = 2.0) -> PodView:
    pod = ended(0)
    assert pod.end is not None and pod.end.said is not None
    said = msgspec.structs.replace(pod.end.said, lines=lines)
    end = msgspec.structs.replace(pod.end, said=said, ended=NOW)
    return msgspec.structs.replace(pod, end=end, started=NOW - lasted_s)


def node_log(cluster: Cluster, copies: Copies, pod: PodView) -> NodeLog:
    return NodeLog(cluster, "default", pod, LogQuery(), copies, GivenLines())  # type: ignore[arg-type]


def keys(log: NodeLog) -> list[tuple[str, int]]:
    return [(line.key, line.seq) for batch in log.read(follow=False) for line in batch]


def test_a_stream_that_the_log_has_nothing_of_is_found_elsewhere() -> None:
    """The kubelet rotates the log of a container of any age: here of one that lasted two seconds."""
    copies = Copies(**{"0_out": 2, "1_out": 2})
    log = node_log(Cluster("1.out 0", "1.out 1"), copies, pod_with({"0.out": 2, "1.out": 2}))
    assert keys(log) == [("1.out", 0), ("1.out", 1), ("0.out", 0), ("0.out", 1)]


def test_all_of_it_was_rotated_away() -> None:
    copies = Copies(**{"0_out": 2})
    assert keys(node_log(Cluster(), copies, pod_with({"0.out": 2}))) == [("0.out", 0), ("0.out", 1)]


def test_streams_of_a_copy_that_the_pod_has_not_told_of_are_another_pod_s() -> None:
    copies = Copies(**{"0_out": 5, "1_out": 2})
    assert keys(node_log(Cluster("1.out 0"), copies, pod_with({"1.out": 2}))) == [("1.out", 0), ("1.out", 1)]


def test_after_a_gap_the_other_streams_are_looked_for_whatever_the_age() -> None:
    copies = Copies(**{"0_out": 2, "1_out": 2})
    log = node_log(Cluster("1.out 1"), copies, pod_with(None))
    assert sorted(keys(log)) == [("0.out", 0), ("0.out", 1), ("1.out", 0), ("1.out", 1)]


def test_lines_that_nobody_has_are_told_of_once() -> None:
    log = node_log(Cluster("1.out 0"), Copies(), pod_with({"0.out": 3, "1.out": 1}, lasted_s=60.0))
    found = [line for batch in log.read(follow=False) for line in batch]
    assert [(line.key, line.seq) for line in found] == [("1.out", 0), ("0.err", -1)]
    assert found[1].data == b"longboat: 3 lines were rotated away by the kubelet\n"
    assert keys(log) == []


@pytest.mark.parametrize("lines", [{"1.out": 1}, {}])
def test_a_log_that_lacks_nothing_costs_nothing(lines: dict[str, int]) -> None:
    copies = Copies(**{"0_out": 2})
    log = node_log(Cluster(*(f"{key} 0" for key in lines)), copies, pod_with(lines, lasted_s=60.0))
    assert keys(log) == [(key, 0) for key in lines] and copies.asked == 0


@pytest.mark.parametrize(("lasted_s", "asked"), [(2.0, 0), (60.0, 1)])
def test_an_empty_log_without_last_words_is_looked_for_if_it_is_old(lasted_s: float, asked: int) -> None:
    copies = Copies(**{"0_out": 2})
    assert len(keys(node_log(Cluster(), copies, pod_with(None, lasted_s=lasted_s)))) == 2 * asked
    assert copies.asked == asked


def test_whether_the_last_lines_of_a_rank_are_there() -> None:
    log = node_log(Cluster("1.out 1"), Copies(), pod_with({"0.out": 3, "1.out": 2}))
    log.source.fills = False
    assert keys(log) == [("1.out", 1)]
    assert log.lacks(0, 1) and not log.lacks(1, 1) and log.lacks(1, 2) and not log.lacks(2, 5)


def test_a_spare_has_the_ranks_of_the_node_that_it_plays() -> None:
    """By the log, of which the kubelet has rotated a part away, and by the launcher's last words."""
    lives = node_log(Cluster("3.out@1 7", "node.err 0"), Copies(), pod_with(None))
    ended = node_log(Cluster("3.out@1 7"), Copies(), pod_with({"2.out@1": 4, "3.out@1": 8}))
    for log, ranks in ((lives, {3}), (ended, {2, 3})):
        log.source.fills = False
        assert keys(log)[0] == ("3.out@1", 7) and log.ranks(()) == ranks
        assert log.lacks(3, 2) and not log.lacks(3, 1)
    assert lives.ranks([0]) == {0, 3}


def test_the_last_lines_of_a_spare_that_plays_a_node_are_made_up_from_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = (Role(name="worker", run="x", nodes=2, spares=1),)
    run = record(Job(name="train", roles=roles, ends=("worker",), retries=Retries(count=3)))
    pod = msgspec.structs.replace(pod_with({"1.out@1": 8}), index=2)
    client: Any = Cluster("1.out@1 7")
    with RunLogs(client, run, LogQuery(tail=2)) as logs:
        monkeypatch.setattr(logs, "_kept", Copies())
        logs._read_pods(logs._spool, [pod])
        assert [(line.node, line.rank, line.attempt) for line in logs._spool.lines(LogQuery())] == [
            ("worker-1", 1, 1)
        ] * 8


def rank_lines(key: str, *numbers: int, start: int = -1) -> list[PodLine]:
    return [PodLine(key, number, 0.0, b"x\n", start) for number in numbers]


def test_lines_of_a_rank_are_given_once_by_whoever_has_them_first() -> None:
    given = GivenLines()
    assert given.new("first", 0, rank_lines("1.out", 0, 1)) == rank_lines("1.out", 0, 1)
    assert given.new("successor", 0, rank_lines("1.out", 0, 1, 2)) == [], "its node's, and another pod's"
    assert given.new(COPIES, 0, rank_lines("1.out", 0, 1, 2)) == rank_lines("1.out", 2), "what the pod could not give"
    assert given.new("successor", 0, rank_lines("1.out@1", 0)) == rank_lines("1.out@1", 0)
    assert given.new(COPIES, 1, rank_lines("1.out", 0, 1)) == rank_lines("1.out", 1), "the same stream"
    assert given.new("first", 2, rank_lines("1.out", 0)) == rank_lines("1.out", 0), "of an attempt with other pods"


def test_what_is_no_rank_s_is_each_pod_s_own_and_uncounted_lines_are_all_given() -> None:
    given = GivenLines()
    for key, number in (("setup.out", 0), ("node.err", 0), ("0.err", -1), ("", -1)):
        for giver in ("first", "successor", COPIES):
            assert given.new(giver, 0, rank_lines(key, number)) == rank_lines(key, number)


def test_pieces_leave_their_line_to_be_given_and_a_log_is_read_again_once_forgotten() -> None:
    given = GivenLines()
    assert given.new("first", 0, rank_lines("0.out", 0, start=0)) and given.new("first", 0, rank_lines("0.out", 0))
    assert not given.new("first", 0, rank_lines("0.out", 0, start=3)) + given.new("first", 0, rank_lines("0.out", 0))
    given.forget("successor")
    assert given.new("first", 0, rank_lines("0.out", 0, 1)) == rank_lines("0.out", 1)
    given.forget("first")
    assert given.new("first", 0, rank_lines("0.out", 0, 1)) == rank_lines("0.out", 0, 1)
