"""Lines from other places than a pod's log. The places are folders of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.core.errors import NotFound
from longboat.engines.kubernetes.logs.lines import LogGap
from longboat.engines.kubernetes.logs.sources import LogCopies, LogSources, gap_line, is_log, tail_in, tail_lines
from longboat.engines.kubernetes.records import State, Storage
from longboat.kubeapi.errors import Unreachable
from tests.engines.kubernetes.speaking import record_of
from tests.engines.shared.test_logfiles import put

LOGS = "longboat/node/logs"
KEPT = "longboat/storage/longboat/train-1/logs/0/worker-0/logs"


class Place:
    """A pod's files below a folder; `breaks` says how often reading breaks after a few bytes."""

    def __init__(self, root: Path, breaks: int = 0) -> None:
        self.root = root
        self.breaks = breaks
        self.read = 0

    def cat(self, path: str, offset: int = 0) -> Iterator[bytes]:
        try:
            data = (self.root / path.lstrip("/")).read_bytes()[offset:]
        except OSError:
            raise NotFound(path) from None
        if self.breaks:
            self.breaks -= 1
            yield data[:5]
            raise Unreachable("cut")
        self.read += len(data)
        yield data

    def names(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self.root / path.lstrip("/")).iterdir())
        except OSError:
            raise NotFound(path) from None


def numbered(path: Path, count: int) -> None:
    put(path, *((float(n), b"line %d\n" % n) for n in range(count)))


def kept(tmp_path: Path, *, storage: bool = True, pod: Place | None = None, helper: Place | None = None) -> LogSources:
    (tmp_path / "spool").mkdir(exist_ok=True)
    record = record_of("ns", storage=Storage(claim="c", folder="longboat/train-1") if storage else None)
    nowhere = Place(tmp_path / "nowhere")
    return LogSources(
        record, tmp_path / "spool", in_pod=lambda name: pod or nowhere, helper_pod=lambda: helper or nowhere
    )


def test_which_files_are_logs() -> None:
    assert all(is_log(name) for name in ("0.out", "12.err", "setup.out", "node.err"))
    assert not any(is_log(name) for name in ("0.out.idx", "beat.json", "out", "x.out", ".0.out"))


def test_a_copy_is_extended_and_resumed(tmp_path: Path) -> None:
    log = tmp_path / "pod" / LOGS / "0.out"
    numbered(log, 10)
    place = Place(tmp_path / "pod", breaks=3)
    (tmp_path / "copy").mkdir()
    copies = LogCopies(tmp_path / "copy", place, f"/{LOGS}")
    found = list(copies.lines("0.out", 3, 2))
    assert [(line.seq, line.time, line.data) for line in found] == [(3, 3.0, b"line 3\n"), (4, 4.0, b"line 4\n")]
    assert place.read < 10 * 7 + 160
    put(log, (10.0, b"line 10\nhalf"))
    assert [line.seq for line in copies.lines("0.out", 9, None)] == [9, 10]
    assert [line.data for line in copies.lines("0.out", 10, None, is_over=True)] == [b"line 10\n", b"half"]
    assert copies.streams() == ["0.out"]


def test_a_place_that_never_answers(tmp_path: Path) -> None:
    numbered(tmp_path / LOGS / "0.out", 100)
    (tmp_path / "copy").mkdir()
    with pytest.raises(Unreachable):
        list(LogCopies(tmp_path / "copy", Place(tmp_path, breaks=99), f"/{LOGS}").lines("0.out", 0, None))


def test_a_gap_is_filled_from_the_pod_else_the_storage_else_told(tmp_path: Path) -> None:
    numbered(tmp_path / "pod" / LOGS / "0.out", 50)
    numbered(tmp_path / "helper" / KEPT / "0.out", 50)
    gap = LogGap("0.out", 10, 5, 20.0)
    pod, helper = Place(tmp_path / "pod"), Place(tmp_path / "helper")
    whole = [b"line %d\n" % n for n in range(10, 15)]
    assert [line.data for line in kept(tmp_path, pod=pod).fill(gap, 0, "worker-0", "p")] == whole
    assert [line.data for line in kept(tmp_path, helper=helper).fill(gap, 0, "worker-0", None)] == whole
    assert [line.data for line in kept(tmp_path, helper=helper).fill(gap, 0, "worker-0", "gone")] == whole
    (only,) = kept(tmp_path, storage=False, helper=helper).fill(gap, 0, "worker-0", None)
    assert (only.key, only.time) == ("0.err", 20.0)
    assert only.data == b"longboat: 5 lines were rotated away by the kubelet\n"
    half = list(kept(tmp_path, pod=pod).fill(LogGap("0.out", 48, 3, 60.0), 0, "worker-0", "p"))
    assert [line.data for line in half] == [b"line 48\n", b"line 49\n", gap_line(LogGap("0.out", 50, 1, 60.0)).data]
    assert b"1 line was" in half[-1].data


def test_streams_that_a_log_has_not_at_all(tmp_path: Path) -> None:
    for rank in range(2):
        numbered(tmp_path / "pod" / LOGS / f"{rank}.out", 3)
    found = list(kept(tmp_path, pod=Place(tmp_path / "pod")).others({"0.out": 2}, 0, "worker-0", "p"))
    assert [(line.key, line.seq) for line in found] == [("0.out", 2), ("1.out", 0), ("1.out", 1), ("1.out", 2)]
    assert list(kept(tmp_path).others({}, 0, "worker-0", None)) == []


TAIL = "0.out 7 2026-11-15T07:10:02.123456Z seven\n0.out 8 2026-11-15T07:10:03Z eight\nKilled"


def test_what_is_left_of_a_pod_that_is_gone(tmp_path: Path) -> None:
    state = State(phase="succeeded", attempt=1, tails={"worker-0": TAIL, "0/worker-0": "old"})
    numbered(tmp_path / "helper" / KEPT / "0.out", 3)
    lines, notice = kept(tmp_path, helper=Place(tmp_path / "helper")).rest(0, "worker-0", {"0.out": 1}, state)
    assert ([line.data for line in lines], notice) == ([b"line 1\n", b"line 2\n"], "")
    lines, notice = kept(tmp_path, storage=False).rest(1, "worker-0", {}, state)
    assert [line.data for line in lines] == [b"seven\n", b"eight\n", b"Killed\n"]
    assert "only the last lines" in notice
    lines, notice = kept(tmp_path).rest(1, "worker-7", {}, state)
    assert (list(lines), "its log with it" in notice) == ([], True)


def test_whose_tail_it_is() -> None:
    state = State(attempt=1, tails={"worker-0": "new", "0/worker-0": "old"})
    assert [tail_in(state, attempt, "worker-0") for attempt in (0, 1, 2)] == ["old", "new", ""]
    assert [line.seq for line in tail_lines(TAIL, {"0.out": 8})] == [8, -1]


def test_lines_of_an_attempt_that_was_restarted_in_place(tmp_path: Path) -> None:
    """In the pod its files bear its number; in the storage they are in its own folder."""
    pod, helper = Place(tmp_path / "pod"), Place(tmp_path / "storage")
    numbered(tmp_path / "pod" / LOGS / "0.out@1", 6)
    numbered(tmp_path / "storage" / KEPT.replace("/0/worker-0/", "/1/worker-0/") / "0.out", 6)
    gap = LogGap("0.out@1", 2, 3, 9.0)
    for source, name in ((kept(tmp_path, pod=pod), "pod-1"), (kept(tmp_path, helper=helper), None)):
        lines = list(source.fill(gap, 0, "worker-0", name))
        assert [(line.key, line.seq, line.data) for line in lines] == [
            ("0.out@1", number, b"line %d\n" % number) for number in (2, 3, 4)
        ]
        others = list(source.others({"0.out@1": 4}, 0, "worker-0", name))
        assert [(line.key, line.seq) for line in others] == [("0.out@1", 4), ("0.out@1", 5)]
