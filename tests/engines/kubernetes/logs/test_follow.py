"""Lines that arrive together, merged. Following real pods is in test_logs."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import cast

from longboat.core.runs import LogLine, LogQuery
from longboat.engines.kubernetes.logs.follow import LINE_BYTES, ByteBudget, NodeReading, merged
from longboat.engines.kubernetes.logs.lines import PodLine
from longboat.engines.kubernetes.logs.node_reader import NodeLog
from tests.engines.kubernetes.manifest_samples import job


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


def test_what_is_held_has_a_bound_and_nobody_waits_who_holds_nothing() -> None:
    room, first, other = ByteBudget(100), cast(NodeReading, object()), cast(NodeReading, object())
    room.take(first, 90)
    room.take(other, 500)  # its first batch
    waiting = threading.Thread(target=room.take, args=(first, 20), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    room.give_back(other, 500)
    waiting.join(0.2)
    assert waiting.is_alive(), "90 and 20 are still more than 100"
    room.give_back(first, 90)
    waiting.join(10)
    assert not waiting.is_alive()


class EndlessLog:
    """A pod that writes short lines for ever, in batches of ten."""

    role, node, attempt = "worker", "worker-0", 0

    def __init__(self) -> None:
        self.batches = 0
        self.is_stopped = False

    def read(self, *, follow: bool) -> Iterator[list[PodLine]]:
        assert follow
        while not self.is_stopped:
            self.batches += 1
            yield [PodLine("0.out", 10 * self.batches + at, 0.0, b"x\n") for at in range(10)]

    def stop(self) -> None:
        self.is_stopped = True


def settled(log: EndlessLog) -> int:
    """Batches read once the reader waits."""
    before, deadline = -1, time.monotonic() + 60
    while log.batches != before and time.monotonic() < deadline:
        before = log.batches
        time.sleep(0.3)
    return before


def test_lines_that_are_taken_count_until_they_are_shown() -> None:
    log, batch = EndlessLog(), 10 * (LINE_BYTES + 2)
    reading = NodeReading(cast(NodeLog, log), job(), queue.Queue(), ByteBudget(5 * batch))
    try:
        assert settled(log) == 6, "five are held, the sixth waits in its thread"
        assert len(reading.take()) == 50
        assert settled(log) == 6, "not shown yet"
        reading.release(2 * batch)
        assert settled(log) == 8
    finally:
        reading.stop()
