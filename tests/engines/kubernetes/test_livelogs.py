"""Lines that arrive together, merged. Following real pods is in test_logs."""

from __future__ import annotations

from longboat.core.runs import LogLine, LogQuery
from longboat.engines.kubernetes.livelogs import merged


def line(rank: int, time: float, text: bytes, stream: str = "out", node: str = "worker-0") -> LogLine:
    return LogLine(role="worker", node=node, rank=rank, stream=stream, time=time, attempt=0, data=text)


def test_by_time_with_the_order_of_each_stream_kept() -> None:
    arrived = [line(0, 3, b"c"), line(1, 2, b"b"), line(1, 1, b"late clock"), line(0, 4, b"d"), line(0, 1, b"a", "err")]
    assert [one.data for one in merged(arrived, LogQuery())] == [b"a", b"b", b"late clock", b"c", b"d"]
    alone = [line(0, 3, b"x"), line(0, 1, b"y")]
    assert [one.data for one in merged(alone, LogQuery())] == [b"x", b"y"]
    assert list(merged([], LogQuery())) == []


def test_only_what_was_asked_for() -> None:
    arrived = [line(0, 3, b"c"), line(1, 2, b"b"), line(-1, 2, b"s", "setup")]
    assert [one.data for one in merged(arrived, LogQuery(ranks=(1,)))] == [b"b"]
    assert [one.data for one in merged(arrived, LogQuery(since=2.5))] == [b"c"]
