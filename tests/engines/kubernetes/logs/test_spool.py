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


def test_attempts_that_shared_a_pod_come_apart_and_no_number_counts_beyond_the_retries() -> None:
    with LogSpool(2) as spool:
        pod = spool.part(0, "worker-0")
        pod.put([line("0.out", 1, b"first\n"), line("0.out@1", 2, b"second\n"), line("node.err@2", 3, b"apart\n")])
        pod.put([line("0.out@3", 2.5, b"of no attempt\n"), line("0.out@0", 2.7, b"nor this\n")])
        pod.flush()
        anew = spool.part(2, "worker-0")
        anew.put([line("node.err", 4, b"anew\n"), line("0.out", 5, b"third\n")])
        anew.flush()
        assert [(one.attempt, one.data, one.rank, one.stream) for one in spool.lines(LogQuery())] == [
            (0, b"first\n", 0, "out"),
            (0, b"of no attempt\n", 0, "out"),
            (0, b"nor this\n", 0, "out"),
            (1, b"second\n", 0, "out"),
            (2, b"apart\n", -1, "err"),
            (2, b"anew\n", -1, "err"),
            (2, b"third\n", 0, "out"),
        ]
        pod.clear()
        assert [one.data for one in spool.lines(LogQuery())] == [b"anew\n", b"third\n"]


def test_pods_of_one_node_and_its_copies_write_to_the_same_logs() -> None:
    with LogSpool(2) as spool:
        pod = spool.part(0, "worker-0")
        pod.put([line("setup.out", 1, b"first\n"), line("0.out", 2, b"a\n"), line("0.out@1", 5, b"c\n")])
        pod.put([line("setup.out", 4, b"second\n")])  # of the pod that was made anew
        pod.flush()
        for number, time in ((0, 3), (1, 6)):
            copy = spool.part(number, "worker-0")
            copy.put([line("0.out", time, b"more\n")])
            copy.flush()
        found = [(each.attempt, each.time, each.data) for each in spool.lines(LogQuery())]
        assert found == [
            (0, 1.0, b"first\n"),
            (0, 2.0, b"a\n"),
            (0, 3.0, b"more\n"),
            (0, 4.0, b"second\n"),
            (1, 5.0, b"c\n"),
            (1, 6.0, b"more\n"),
        ]
