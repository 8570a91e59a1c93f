"""Logs of real pods: complete, once, in order, over broken streams, rotation, deletion and retries."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from longboat.core.jobs import Retries
from longboat.core.runs import Attempt, LogLine, LogQuery
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.logs.merge import tail_of
from longboat.engines.kubernetes.records import Record, State, Storage, ranks_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import POD
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.speaking import (
    client_of,
    follow_logs,
    record_of,
    role,
    speak,
    state_of,
    until,
    until_ended,
    until_running,
)

ENDED = State(phase="succeeded", started=1.0)


def read(
    client: Client, record: Record, *, state: State = ENDED, notices: list[str] | None = None, **query: object
) -> list[LogLine]:
    told = [] if notices is None else notices
    return list(follow_logs(client, record, LogQuery(**query), lambda: state, told.append))  # type: ignore[arg-type]


def texts(lines: list[LogLine]) -> list[str]:
    return [line.data.decode().rstrip("\n") for line in lines]


def test_which_ranks_a_node_has() -> None:
    record = record_of("ns", role("chief"), role("worker", nodes=2, procs=3), role("ps", nodes=1))
    found = [list(ranks_of(record, name, index)) for name, index in (("chief", 0), ("worker", 1), ("ps", 0), ("x", 0))]
    assert found == [[0], [4, 5, 6], [7], []]


MANY = """
for number in range(5000):
    for rank in (FIRST, FIRST + 1):
        say(rank, "out", "rank %d line %d " % (rank, number) + "x" * (number % 80))
    if number % 500 == 0:
        say(FIRST, "err", "error %d" % number)
    if number % 100 == 0:
        time.sleep(0.1)
"""


def expected_bytes(rank: int) -> bytes:
    return "".join(f"rank {rank} line {n} " + "x" * (n % 80) + "\n" for n in range(5000)).encode()


def bytes_of(lines: list[LogLine], rank: int, stream: str = "out") -> bytes:
    return b"".join(line.data for line in lines if (line.rank, line.stream) == (rank, stream))


@pytest.mark.pods
def test_a_connection_cut_every_second_loses_and_doubles_nothing(
    client: Client, cluster: Cluster, namespace: str, api_proxy: ApiProxy
) -> None:
    record = record_of(namespace, role(nodes=2, procs=2))
    for number in range(2):
        speak(client, f"FIRST = {2 * number}\n" + MANY, node=f"worker-{number}")
    over = threading.Event()

    def cut() -> None:
        while not over.wait(1.0):
            api_proxy.cut()
            time.sleep(0.05)
            api_proxy.restore()

    cutting = threading.Thread(target=cut, daemon=True)
    cutting.start()
    try:
        with client_of(cluster, namespace, kubeconfig=api_proxy.kubeconfig) as broken:
            lines = list(follow_logs(broken, record, LogQuery(follow=True), lambda: state_of(client, expected=2)))
    finally:
        over.set()
        cutting.join()
        api_proxy.restore()
    for rank in range(4):
        assert bytes_of(lines, rank) == expected_bytes(rank)
    assert len(lines) == 4 * 5000 + 2 * 10
    opened = [seen.request.target for seen in api_proxy.seen if "/log?" in seen.request.target]
    assert any("sinceTime" in target for target in opened), opened

    kept = read(client, record)
    for rank in range(4):
        assert bytes_of(kept, rank) == expected_bytes(rank)
    assert [line.time for line in kept] == sorted(line.time for line in kept)
    assert {(line.rank, line.node, line.role, line.attempt) for line in kept} == {
        (rank, f"worker-{rank // 2}", "worker", 0) for rank in range(4)
    }


@pytest.mark.pods
def test_bytes_long_lines_and_strangers(client: Client, namespace: str) -> None:
    program = """
say("setup", "out", "installs")
say(0, "out", bytes(b for b in range(256) if b != 10))
say(0, "out", b"a\\r")
say(0, "out", "")
say(0, "out", b"begin" + b"0123456789" * 1000000 + b"end")
say("node", "err", "a word of the launcher")
say(0, "out", "no newline", newline=False)
sys.stdout.write("Traceback: it crashed\\n")
"""
    speak(client, program)
    until_ended(client)
    for query in ({}, {"follow": True}):
        lines = read(client, record_of(namespace), state=state_of(client), **query)
        ranks = [line.data for line in lines if line.rank == 0]
        long = b"begin" + b"0123456789" * 1000000 + b"end\n"
        assert ranks == [bytes(b for b in range(256) if b != 10) + b"\n", b"a\r\n", b"\n", long, b"no newline"]
        others = {(line.stream, line.data) for line in lines if line.rank == -1}
        assert others == {
            ("setup", b"installs\n"), ("err", b"a word of the launcher\n"), ("err", b"Traceback: it crashed\n"),
        }  # fmt: skip
    assert tail_of(client, "train-a0-worker-0", lines=3).splitlines()[-1] == "Traceback: it crashed"
    assert len(tail_of(client, "train-a0-worker-0")) <= 8192


@pytest.mark.pods
def test_queries(client: Client, namespace: str) -> None:
    record = record_of(namespace, role("chief"), role("worker", procs=2))
    part = (
        'for n in range(10):\n    for r in RANKS: say(r, "out", "%d %d" % (r, n))\n    time.sleep(1.0 if n == 4 else 0)'
    )
    speak(client, "RANKS = [0]\n" + part, node="chief-0")
    speak(client, "RANKS = [1, 2]\n" + part, node="worker-0")
    until_ended(client, 2)
    whole = read(client, record)
    assert len(whole) == 30

    def asked(**query: object) -> list[str]:
        return sorted(texts(read(client, record, **query)))

    assert asked(ranks=(1,)) == [f"1 {n}" for n in range(10)]
    assert asked(roles=("chief",)) == [f"0 {n}" for n in range(10)]
    assert asked(roles=("chief",), ranks=(1,)) == []
    assert asked(tail=2) == ["0 8", "0 9", "1 8", "1 9", "2 8", "2 9"]
    assert asked(tail=0) == []
    middle = max(line.time for line in whole if line.data.endswith(b" 4\n")) + 0.2
    assert asked(since=middle, ranks=(2,)) == [f"2 {n}" for n in range(5, 10)]
    assert asked(since=whole[-1].time + 1) == []
    assert asked(attempt=0, ranks=(2,), tail=1) == ["2 9"]
    assert asked(attempt=7) == []


@pytest.mark.pods
def test_a_follower_sees_lines_at_once_and_those_of_a_retry_after_them(client: Client, namespace: str) -> None:
    record = record_of(namespace)
    speak(client, 'say(0, "out", "first"); say(0, "out", "again"); until("go"); say(0, "out", "last"); sys.exit(3)')
    pods = until_running(client)
    until("it has spoken", lambda: "again" in tail_of(client, pods[0].name))
    is_over = threading.Event()

    def look() -> State:
        attempt = 1 if any(view.attempt for view in pods) else 0
        return State(phase="succeeded" if is_over.is_set() else "running", started=1.0, attempt=attempt)

    lines = follow_logs(client, record, LogQuery(follow=True, tail=1), look)
    assert next(lines).data == b"again\n"
    Remote(client, namespace, pods[0].name).put("/longboat/node/go", open("/dev/null", "rb"))
    line = next(lines)
    assert (line.data, line.attempt, line.node) == (b"last\n", 0, "worker-0")
    until_ended(client)
    speak(client, 'say(0, "out", "once more")', attempt=1)
    line = next(lines)
    assert (line.data, line.attempt) == (b"once more\n", 1)
    is_over.set()
    assert list(lines) == []
    assert texts(read(client, record, state=State(phase="succeeded", started=1.0, attempt=1))) == [
        "first", "again", "last", "once more",
    ]  # fmt: skip


@pytest.mark.pods
def test_of_a_deleted_pod_the_storage_has_all_and_the_record_the_tail(client: Client, namespace: str) -> None:
    source = {"hostPath": {"path": f"/var/lib/{namespace}", "type": "DirectoryOrCreate"}}
    program = """
for n in range(100): say(0, "out", "line %d" % n)
for n in range(3): say(0, "err", "error %d" % n)
import shutil
shutil.copytree(NODE + "/logs", "/longboat/storage/longboat/train-01234567/logs/0/worker-0/logs")
"""
    speak(client, program, storage=source)
    until_ended(client)
    tail = tail_of(client, "train-a0-worker-0", lines=5)
    client.delete(POD, "train-a0-worker-0", grace_s=0)
    until("it is gone", lambda: client.find(POD, "train-a0-worker-0") is None)

    storage = Storage(path=f"/var/lib/{namespace}", folder="longboat/train-01234567")
    notices: list[str] = []
    lines = read(client, record_of(namespace, storage=storage), notices=notices)
    assert bytes_of(lines, 0) == b"".join(b"line %d\n" % n for n in range(100))
    assert bytes_of(lines, 0, "err") == b"error 0\nerror 1\nerror 2\n"
    assert notices == []
    left = [pod["metadata"]["name"] for pod in client.list(POD).items if "deletionTimestamp" not in pod["metadata"]]
    assert left == []

    state = State(phase="succeeded", started=1.0, tails={"worker-0": tail})
    lines = read(client, record_of(namespace), state=state, notices=notices)
    assert texts(lines) == ["line 98", "line 99", "error 0", "error 1", "error 2"]
    assert len(notices) == 1 and "only the last lines" in notices[0]
    assert read(client, record_of(namespace), notices=notices) == []
    assert "its log with it" in notices[1]


@pytest.mark.pods
def test_a_pod_deleted_while_it_is_followed_ends_with_what_the_storage_has(client: Client, namespace: str) -> None:
    source = {"hostPath": {"path": f"/var/lib/{namespace}", "type": "DirectoryOrCreate"}}
    program = """
import shutil, signal
def leave(*_):
    say(0, "out", "last words")
    shutil.copytree(NODE + "/logs", "/longboat/storage/longboat/train-01234567/logs/0/worker-0/logs")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
for n in range(50): say(0, "out", "line %d" % n)
time.sleep(600)
"""
    record = record_of(namespace, storage=Storage(path=f"/var/lib/{namespace}", folder="longboat/train-01234567"))
    speak(client, program, storage=source, terminationGracePeriodSeconds=20)
    until_running(client)
    state = [State(phase="running", started=1.0)]
    lines = follow_logs(client, record, LogQuery(follow=True), lambda: state[0])
    assert [next(lines).data for _ in range(50)] == [b"line %d\n" % n for n in range(50)]
    client.delete(POD, "train-a0-worker-0")
    until("it is gone", lambda: client.find(POD, "train-a0-worker-0") is None)
    state[0] = ENDED
    assert [line.data for line in lines] == [b"last words\n"]


REPLACED = """
import shutil
KEPT = "/longboat/storage/longboat/train-01234567/logs/%d/%s/logs"

def keep(number, node, rank):
    os.makedirs(KEPT % (number, node))
    mark = "@%d" % number if number else ""
    for end in ("", ".idx"):
        log = "%s/logs/%d.out%s%s" % (NODE, rank, mark, end)
        shutil.copy(log, KEPT % (number, node) + "/%d.out%s" % (rank, end))
        if rank == number == 0: shutil.copy(NODE + "/logs/setup.out" + end, KEPT % (number, node))

def train(number, node, rank, is_kept=True):
    mark = "@%d" % number if number else ""
    for n in range(3): say(rank, "out" + mark, "rank %d line %d.%d" % (rank, number, n))
    if is_kept: keep(number, node, rank)

def killed(number):
    if number:
        said = {"v": 1, "node": "worker-0", "attempt": number, "restarts": [{"attempt": n} for n in range(number)]}
        open("/dev/termination-log", "w").write(json.dumps(said))
    os._exit(137)
"""


def pods_of_replaced_node(client: Client, source: dict[str, object]) -> tuple[str, str]:
    """Node 0 and the first pod of node 1 have been killed. The second pod of each go on; their names."""
    first = """
say("setup", "out", "installs")
train(0, "worker-0", 0); train(1, "worker-0", 0); train(2, "worker-0", 0, is_kept=False); killed(2)
"""
    speak(client, REPLACED + first, storage=source)
    speak(client, REPLACED + 'train(0, "worker-1", 1, is_kept=False); killed(0)', node="worker-1", storage=source)
    until_ended(client, 2)
    again = 'train(1, "worker-1", 1); train(2, "worker-1", 1); until("go")'
    second = speak(client, REPLACED + again, node="worker-1", successor=1, storage=source)
    late = speak(client, 'say("node", "err", "too late"); until("go")', successor=1)
    until("it has spoken", lambda: "line 2.2" in tail_of(client, second))
    until("the late one has spoken", lambda: "too late" in tail_of(client, late))
    return second, late


def of_ranks(lines: list[LogLine]) -> list[tuple[int, int, bytes]]:
    """By attempt and rank; what is not in its order within these stays so."""
    ranks = [(line.rank, line.attempt, line.data) for line in lines if line.rank >= 0]
    return sorted(ranks, key=lambda each: each[1::-1])


@pytest.mark.pods
def test_each_line_of_a_node_with_several_pods_comes_once(client: Client, namespace: str) -> None:
    """Seed 801850888 of bench/reliability.py: a launcher killed, its pod made anew and then deleted, node 0 killed."""
    storage = Storage(path=f"/var/lib/{namespace}", folder="longboat/train-01234567")
    plain = record_of(namespace, role(nodes=2), storage=storage)
    record = msgspec.structs.replace(plain, job=msgspec.structs.replace(plain.job, retries=Retries(count=3)))
    second = pods_of_replaced_node(client, {"hostPath": {"path": storage.path, "type": "DirectoryOrCreate"}})
    whole = [
        (rank, number, b"rank %d line %d.%d\n" % (rank, number, n))
        for number in range(3) for rank in range(2) for n in range(3)
    ]  # fmt: skip
    attempts = (Attempt(number=0, started=1.0), *(
        Attempt(number=number, started=1.0, restart="in-place", replaced=names)
        for number, names in ((1, ("worker-1",)), (2, ()))
    ))  # fmt: skip
    ended = State(phase="failed", started=1.0, attempts=attempts)
    states = iter((State(phase="running", started=1.0), ended))
    follower = follow_logs(client, record, LogQuery(follow=True, tail=100), lambda: next(states, ended))
    shown = [next(follower) for _ in range(len(whole) + 2)]
    for pod in second:
        client.delete(POD, pod, grace_s=0)
        until("it is gone", lambda name=pod: client.find(POD, name) is None)  # type: ignore[misc]
    shown += list(follower)
    assert of_ranks(shown) == whole
    assert [line.data for line in shown if line.rank < 0] == [b"installs\n", b"too late\n"]
    notices: list[str] = []
    lines = read(client, record, state=ended, notices=notices)
    assert of_ranks(lines) == whole and notices == []
    assert [line.data for line in lines if line.rank < 0] == [b"installs\n"]
    assert of_ranks(read(client, record, state=ended, attempt=1)) == whole[6:12]


@pytest.mark.pods
@pytest.mark.soak
def test_what_the_kubelet_rotated_away_is_found_elsewhere(client: Client, namespace: str) -> None:
    """More than its limit of 10 MiB: the API has the newest file only."""
    source = {"hostPath": {"path": f"/var/lib/{namespace}", "type": "DirectoryOrCreate"}}
    program = """
say(1, "out", "quiet since")
for n in range(24000): say(0, "out", "line %d " % n + "x" * 500)
until("rotated")
for n in range(24000, 24100): say(0, "out", "line %d " % n + "x" * 500)
until("end")
import shutil
shutil.copytree(NODE + "/logs", "/longboat/storage/longboat/train-01234567/logs/0/worker-0/logs")
"""
    lines = [b"line %d " % n + b"x" * 500 + b"\n" for n in range(24100)]
    record = record_of(namespace, role(procs=2))
    pod = speak(client, program, storage=source)
    until_running(client)
    remote = Remote(client, namespace, pod)
    running = State(phase="running", started=1.0)
    until("12 MB were written", lambda: len(b"".join(remote.cat("/longboat/node/logs/0.out.idx"))) == 24000 * 16)
    until("the kubelet has rotated", lambda: first_line(client, pod) != "0")
    before = read(client, record, state=running)
    assert bytes_of(before, 0) == b"".join(lines[:24000])
    assert bytes_of(before, 1) == b"quiet since\n"

    # A follower joins here, and sees all that was and all that comes.
    followed: list[LogLine] = []
    coming = follow_logs(client, record, LogQuery(follow=True), lambda: state_of(client))
    following = threading.Thread(target=lambda: followed.extend(coming), daemon=True)
    following.start()
    remote.put("/longboat/node/rotated", open("/dev/null", "rb"))
    until("the rest", lambda: " 24099 " in tail_of(client, pod, lines=1))
    assert bytes_of(read(client, record, state=running), 0) == b"".join(lines)
    assert texts(read(client, record, state=running, tail=2, ranks=(0,)))[-1].startswith("line 24099 ")
    assert len(read(client, record, state=running, tail=24050)) == 24051

    remote.put("/longboat/node/end", open("/dev/null", "rb"))
    until_ended(client)
    following.join()
    storage = Storage(path=f"/var/lib/{namespace}", folder="longboat/train-01234567")
    for found in (followed, read(client, record_of(namespace, role(procs=2), storage=storage))):
        assert bytes_of(found, 0) == b"".join(lines)
        assert bytes_of(found, 1) == b"quiet since\n"

    # Without a storage nobody has them any more.
    told = read(client, record)
    (gap,) = (line for line in told if line.stream == "err")
    there = [line.data for line in told if line.stream == "out"]
    assert told[0] is gap and gap.rank == 0
    assert gap.data.decode() == f"longboat: {24100 - len(there)} lines were rotated away by the kubelet\n"
    assert there == lines[-len(there) :]


def first_line(client: Client, pod: str) -> str:
    """The number of the first line that the API has; empty when it has none."""
    with client.log(pod, limit_bytes=200) as stream:
        words = b"".join(stream).split()
    return words[1].decode() if len(words) > 1 else ""
