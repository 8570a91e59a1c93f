"""Lines of pods spooled to files and merged."""

from __future__ import annotations

import os

import pytest

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.logs import spool as module
from longboat.engines.kubernetes.logs.lines import FOREIGN, PodLine
from longboat.engines.kubernetes.logs.spool import LogSpool


def line(key: str, time: float, text: bytes) -> PodLine:
    return PodLine(key, 0, time, text)


def test_all_are_merged_by_time_and_attempts_follow_each_other() -> None:
    with LogSpool() as spool:
        first = spool.part(0, "worker-0")
        first.put([line("0.out", 1, b"a\n"), line("setup.out", 0.5, b"s\n"), line("0.out", 4, b"d\n")])
        first.put([line("node.err", 2.5, b"launcher\n"), line(FOREIGN, 9, b"stranger\n")])
        first.flush()
        second = spool.part(0, "my-ps-1")
        second.put([line("1.err", 2, b"b\n"), line("1.out", 3, b"c"), line("1.out", 3, b"")])
        second.flush()
        later = spool.part(1, "worker-0")
        later.put([line("0.out", 0.1, b"the clock went back\n")])
        later.flush()
        found = list(spool.lines(LogQuery()))
        assert [(one.data, one.rank, one.stream, one.node, one.role, one.attempt) for one in found] == [
            (b"s\n", -1, "setup", "worker-0", "worker", 0),
            (b"a\n", 0, "out", "worker-0", "worker", 0),
            (b"b\n", 1, "err", "my-ps-1", "my-ps", 0),
            (b"launcher\n", -1, "err", "worker-0", "worker", 0),
            (b"c", 1, "out", "my-ps-1", "my-ps", 0),
            (b"d\n", 0, "out", "worker-0", "worker", 0),
            (b"stranger\n", -1, "err", "worker-0", "worker", 0),
            (b"the clock went back\n", 0, "out", "worker-0", "worker", 1),
        ]
        assert [one.data for one in spool.lines(LogQuery(ranks=(1,)))] == [b"b\n", b"c"]
        assert [one.data for one in spool.lines(LogQuery(attempt=1))] == [b"the clock went back\n"]
        assert [one.data for one in spool.lines(LogQuery(since=3.5, attempt=0))] == [b"d\n", b"stranger\n"]
        first.clear()
        assert {one.node for one in spool.lines(LogQuery(attempt=0))} == {"my-ps-1"}
        folder = spool.folder
    assert not folder.exists()


def test_much_is_not_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD", 1000)
    with LogSpool() as spool:
        part = spool.part(0, "worker-0")
        for number in range(100):
            part.put([line("0.out", number, b"x" * 50 + b"\n")])
            assert part._held <= 1100
        part.flush()
        assert len(list(spool.lines(LogQuery()))) == 100


def test_more_logs_than_files_may_be_open() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(map(int, os.listdir("/proc/self/fd"))) + 200  # this process may have many open already
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    try:
        with LogSpool() as spool:
            part = spool.part(0, "worker-0")
            part.put(line(f"{rank}.out", rank, b"%d\n" % rank) for rank in range(600))
            part.flush()
            assert [one.rank for one in spool.lines(LogQuery())] == list(range(600))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
