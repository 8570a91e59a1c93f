"""The tee: nothing lost, nothing changed, nobody held up, also when the disk is full."""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.launcher.ranks.streams import RankStream, pipe_size
from tests.launcher.nodes import Node

Make = Callable[..., Node]


def records(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes()
    assert len(data) % 16 == 0
    return [struct.unpack_from("<QQ", data, at) for at in range(0, len(data), 16)]


def test_index_gives_every_byte_a_time(make_node: Make) -> None:
    before = time.time_ns()
    node = make_node("echo one; sleep 0.2; echo two; printf three")
    assert node.run() == 0
    assert node.log() == b"one\ntwo\nthree"
    index = records(node.directory / "logs" / "0.out.idx")
    assert index[0][0] == 4
    assert index[-1][0] == 13
    assert [end for end, _ in index] == sorted(end for end, _ in index)
    times = [at for _, at in index]
    assert before < times[0] and times == sorted(times) and times[-1] < time.time_ns()
    assert times[-1] - times[0] > 150_000_000


def test_binary_bytes_are_kept(make_node: Make) -> None:
    node = make_node(["python", "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 999 + b'\\r\\0\\xff')"])
    assert node.run() == 0
    assert node.log() == bytes(range(256)) * 999 + b"\r\0\xff"


def test_a_line_of_10_mb(make_node: Make) -> None:
    node = make_node(["python", "-c", "import sys; sys.stdout.write('x' * 10_000_000 + '\\n')"])
    assert node.run() == 0
    data = node.log()
    assert len(data) == 10_000_001
    assert data.count(b"x") == 10_000_000


FLOOD = """
import hashlib, os, sys
seed = os.environ["RANK"].encode()
digest = hashlib.md5()
for number in range(int(sys.argv[1])):
    block = (b"%d " % number + seed * 100 + b"\\n") * 620
    digest.update(block)
    os.write(1, block[:7])
    view = memoryview(block)[7:]
    while view:
        view = view[os.write(1, view):]
os.write(2, digest.hexdigest().encode())
"""


@pytest.mark.parametrize("blocks", [1000, pytest.param(3200, marks=pytest.mark.slow)])
def test_a_flood_from_two_ranks_is_complete(make_node: Make, blocks: int) -> None:
    node = make_node(["python", "train.py", str(blocks)], procs=2)
    node.script(FLOOD)
    assert node.run() == 0
    for rank in (0, 1):
        path = node.directory / "logs" / f"{rank}.out"
        assert hashlib.md5(path.read_bytes()).hexdigest() == node.log(f"{rank}.err").decode()
        assert records(node.directory / "logs" / f"{rank}.out.idx")[-1][0] == path.stat().st_size


def test_a_rank_that_closes_its_output_goes_on(make_node: Make) -> None:
    node = make_node("echo before; exec >&- 2>&-; sleep 0.3; exit 4")
    assert node.run() == 4
    assert node.log() == b"before\n"


def test_output_of_a_background_child_is_kept_until_the_node_ends(make_node: Make) -> None:
    node = make_node("if [ $RANK = 0 ]; then (sleep 0.3; echo late) & exit 0; fi; sleep 1", procs=2)
    assert node.run() == 0
    assert node.log("0.out") == b"late\n"


def test_what_was_written_before_a_kill_is_kept(make_node: Make) -> None:
    node = make_node(["python", "-c", "import os, sys; os.write(1, b'y' * 50000); os.kill(os.getpid(), 9)"])
    assert node.run() == 137
    assert node.log() == b"y" * 50000


def test_an_engine_that_holds_a_read_end_saves_what_a_killed_launcher_left(make_node: Make) -> None:
    node = make_node(["python", "train.py"])
    node.script(
        "import os\nfor number in range(200000):\n    os.write(1, b'%06d\\n' % number)\n"
        "    if number == 20000: open('go', 'w').close()\n"
    )
    (node.directory / "pipes").mkdir()
    pipe = node.directory / "pipes" / "0.out"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    process = node.start()
    node.until(lambda: (node.work / "go").exists())
    process.kill()
    process.wait()
    data = bytearray(node.log())
    while True:
        try:
            part = os.read(held, 65536)
        except BlockingIOError:
            time.sleep(0.01)
            continue
        if not part:
            break
        data += part
    os.close(held)
    assert bytes(data) == b"".join(b"%06d\n" % number for number in range(200000))


def test_append_to_a_log_of_before(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"before\n")
    stream = RankStream(str(tmp_path / "pipe"), str(tmp_path / "log"), pipe_size(1))
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.write(writer, b"after\n")
    assert stream.move() == 6
    assert stream.move() == 0
    stream.close()
    os.close(writer)
    assert (tmp_path / "log").read_bytes() == b"before\nafter\n"
    assert records(tmp_path / "log.idx")[0][0] == 13


def test_without_splice_bytes_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "splice", raising=False)
    stream = RankStream(str(tmp_path / "pipe"), str(tmp_path / "log"), pipe_size(1))
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.write(writer, b"copied\n")
    assert stream.move() == 7
    assert stream.move() == 0
    stream.close()
    os.close(writer)
    assert (tmp_path / "log").read_bytes() == b"copied\n"


def test_many_streams_get_small_pipes() -> None:
    assert pipe_size(2) == 1 << 20
    assert pipe_size(256) <= 65536


def test_full_disk_holds_the_rank_back_and_loses_nothing(make_node: Make) -> None:
    """A file-size limit stands for the full disk: the kernel refuses further bytes of the log with an error."""
    node = make_node(["python", "train.py"])
    node.script(
        "import resource, os\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "for number in range(60000):\n    os.write(1, b'%09d\\n' % number)\nos.write(2, b'done')\n"
    )
    import resource

    process = node.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, -1)))
    node.until(lambda: node.has("beat.json") and node.json("beat.json")["problems"])
    assert process.poll() is None
    assert "0.out" in node.json("beat.json")["problems"][0]
    assert len(node.log()) == 200_000
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    assert node.wait() == 0
    assert node.log() == b"".join(b"%09d\n" % number for number in range(60000))
    assert node.log("0.err") == b"done"
    assert node.json("beat.json")["problems"] == []


def test_one_rank_does_not_hold_up_another(make_node: Make) -> None:
    node = make_node("if [ $RANK = 0 ]; then yes; fi; echo tick; sleep 0.3; echo tock", procs=2)
    node.start()
    node.until_log("tock", "1.out")
    node.signal(signal.SIGTERM)
    node.wait()
    assert node.log("0.out")[:4] == b"y\ny\n"
