"""Promise 3: logs are complete, ordered per rank, and kept after the end."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from longboat.core.runs import LogLine, LogQuery
from tests.conformance.conftest import Jobs

NUMBERS = """
import os, sys
rank = int(os.environ["RANK"])
for number in range(20000):
    print(f"rank {rank} line {number} " + "x" * (number % 80))
    if number % 1000 == 0:
        print(f"rank {rank} error {number}", file=sys.stderr)
"""


def numbered(lines: list[LogLine], rank: int, stream: str) -> bytes:
    return b"".join(line.data for line in lines if line.rank == rank and line.stream == stream)


def expected(rank: int) -> tuple[bytes, bytes]:
    out = "".join(f"rank {rank} line {n} " + "x" * (n % 80) + "\n" for n in range(20000))
    err = "".join(f"rank {rank} error {n}\n" for n in range(0, 20000, 1000))
    return out.encode(), err.encode()


def follow(jobs: Jobs, run: str, answers: multiprocessing.SimpleQueue[list[tuple[int, str, bytes]]]) -> None:
    lines = jobs.place.again().logs(run, LogQuery(follow=True))
    answers.put([(line.rank, line.stream, line.data) for line in lines])


def test_four_ranks_write_and_a_follower_sees_the_very_same_bytes(jobs: Jobs) -> None:
    run = jobs.submit(NUMBERS, nodes=2, procs=2)
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    follower = fork.Process(target=follow, args=(jobs, run.name, answers))
    follower.start()
    followed = answers.get()
    follower.join()
    assert jobs.wait(run.name).phase == "succeeded"
    kept = list(jobs.place.again().logs(run.name, LogQuery()))
    for rank in range(4):
        assert (numbered(kept, rank, "out"), numbered(kept, rank, "err")) == expected(rank)
        for number, stream in enumerate(("out", "err")):
            seen = b"".join(data for r, s, data in followed if (r, s) == (rank, stream))
            assert seen == expected(rank)[number]
    assert len(followed) == len(kept)
    assert [line.time for line in kept] == sorted(line.time for line in kept)
    of_ranks = [line for line in kept if line.rank >= 0]  # a launcher may have said that it waits for another node
    assert {(line.rank, line.node, line.role, line.attempt) for line in of_ranks} == {
        (rank, f"worker-{rank // 2}", "worker", 0) for rank in range(4)
    }


def test_bytes_stay_as_they_were(jobs: Jobs) -> None:
    code = """
import os, sys
os.write(1, bytes(range(256)) + b"\\n")
os.write(1, b"a\\r\\nb\\r" + b"\\0" * 5 + b"\\n\\n\\n")
os.write(2, "schön".encode("latin-1") + b"\\n")
os.write(1, b"no newline at the end")
"""
    run = jobs.run(code)
    lines = list(jobs.engine.logs(run.name, LogQuery()))
    out = bytes(range(256)) + b"\na\r\nb\r\0\0\0\0\0\n\n\n" + b"no newline at the end"
    assert numbered(lines, 0, "out") == out
    assert numbered(lines, 0, "err") == b"sch\xf6n\n"
    assert all(line.data.count(b"\n") <= 1 for line in lines)


def test_a_line_of_ten_megabytes(jobs: Jobs) -> None:
    code = """
import os, sys
sys.stdout.buffer.write(b"begin" + b"0123456789" * 1_000_000 + b"end\\nafter\\n")
"""
    run = jobs.run(code, procs=2)
    for rank in range(2):
        lines = list(jobs.engine.logs(run.name, LogQuery(ranks=(rank,))))
        assert [len(line.data) for line in lines] == [10_000_009, 6]
        assert lines[0].data == b"begin" + b"0123456789" * 1_000_000 + b"end\n"


def test_streams_of_a_rank_are_told_apart_and_merged_by_time(jobs: Jobs) -> None:
    code = """
import os, time
for number in range(5):
    os.write(1, b"out %d\\n" % number)
    time.sleep(0.05)
    os.write(2, b"err %d\\n" % number)
    time.sleep(0.05)
"""
    run = jobs.run(code)
    lines = list(jobs.engine.logs(run.name, LogQuery()))
    assert [(line.stream, line.data) for line in lines] == [
        pair for n in range(5) for pair in (("out", b"out %d\n" % n), ("err", b"err %d\n" % n))
    ]


def test_queries(jobs: Jobs) -> None:
    code = """
import os, time
rank = os.environ["LONGBOAT_RANK"]
for number in range(10):
    print(f"{rank} {number}", flush=True)
    if number == 4:
        time.sleep(1.0)
"""
    run = jobs.run(code, roles={"chief": {"nodes": 1}, "worker": {"nodes": 1, "procs": 2}})
    whole = list(jobs.engine.logs(run.name, LogQuery()))
    assert len(whole) == 30

    def asked(**query: object) -> list[str]:
        lines = jobs.engine.logs(run.name, LogQuery(**query))  # type: ignore[arg-type]
        return sorted(line.data.decode().strip() for line in lines)

    assert asked(ranks=(1,)) == [f"1 {n}" for n in range(10)]
    assert asked(roles=("chief",)) == [f"0 {n}" for n in range(10)]
    assert asked(roles=("chief",), ranks=(1,)) == []
    assert asked(tail=2) == ["0 8", "0 9", "1 8", "1 9", "2 8", "2 9"]
    assert asked(tail=0) == []
    middle = max(line.time for line in whole if line.data.endswith(b" 4\n")) + 0.2
    assert asked(since=middle, ranks=(0,)) == [f"0 {n}" for n in range(5, 10)]
    assert asked(since=whole[-1].time + 1) == []
    assert asked(attempt=0, ranks=(2,), tail=1) == ["2 9"]
    assert asked(attempt=7) == []
    assert asked(grep=(" [89]$",), ranks=(0,)) == ["0 8", "0 9"]
    assert asked(grep=(" 3", " 4"), tail=1) == ["0 4", "1 4", "2 4"]
    assert asked(grep=("[0-8]$",), invert_match=True) == ["0 9", "1 9", "2 9"]
    assert asked(grep=(" 7",), follow=True) == ["0 7", "1 7", "2 7"]


def test_following_a_run_that_has_ended_ends(jobs: Jobs) -> None:
    run = jobs.run("print('done')")
    assert [line.data for line in jobs.engine.logs(run.name, LogQuery(follow=True))] == [b"done\n"]
    assert [line.data for line in jobs.engine.logs(run.name, LogQuery(follow=True, tail=1))] == [b"done\n"]


def test_a_follower_sees_lines_before_the_end(jobs: Jobs) -> None:
    code = """
import os, time
print("first", flush=True)
while not os.path.exists(os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "go")):
    time.sleep(0.01)
print("second")
"""
    run = jobs.submit(code)
    lines = jobs.engine.logs(run.name, LogQuery(follow=True))
    assert next(lines).data == b"first\n"
    status = jobs.engine.status(run.name)
    assert not status.is_final and status.checkpoint_dir is not None
    jobs.engine.copy_to(run.name, _file(jobs, "go"), "checkpoints/go")
    assert [line.data for line in lines] == [b"second\n"]
    assert jobs.wait(run.name).phase == "succeeded"


def _file(jobs: Jobs, name: str):  # type: ignore[no-untyped-def]
    path = jobs.root / name
    path.write_text("")
    return path


def test_logs_of_every_attempt_are_kept(jobs: Jobs) -> None:
    code = """
import os, sys
print("attempt", os.environ["LONGBOAT_ATTEMPT"])
sys.exit(0 if os.environ["LONGBOAT_ATTEMPT"] == "2" else 3)
"""
    run = jobs.run(code, retries={"count": 2, "backoff": "0s"})
    lines = list(jobs.engine.logs(run.name, LogQuery()))
    assert [(line.attempt, line.data) for line in lines] == [(n, b"attempt %d\n" % n) for n in range(3)]
    assert jobs.text(run.name, attempt=1) == "attempt 1\n"


def test_what_setup_says_is_in_the_logs(jobs: Jobs) -> None:
    run = jobs.run("print('trains')", setup="echo preparing; echo trouble >&2")
    lines = list(jobs.engine.logs(run.name, LogQuery()))
    assert [line.data for line in lines] == [b"preparing\n", b"trouble\n", b"trains\n"]
    assert [line.rank for line in lines] == [-1, -1, 0]


@pytest.mark.parametrize("size", [0, 1, 65536, 1 << 20])
def test_what_a_rank_wrote_just_before_it_died_is_there(jobs: Jobs, size: int) -> None:
    code = f"""
import os, signal
left = b"z" * {size} + b"last\\n"
while left:
    left = left[os.write(1, left):]
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = jobs.run(code)
    assert run.exit_code == 137
    assert jobs.text(run.name) == "z" * size + "last\n"
    assert time.time() >= (run.ended or 0)
