"""Commands beside ranks in real pods, files in and out of them, and of runs that have ended."""

from __future__ import annotations

import json
import os
import pty
import select
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import NotFound, UsageError
from longboat.core.jobs import Job, Retries, Role, Volume
from longboat.engines.kubernetes.exec.files import (
    copy_in,
    copy_out,
    execute,
    in_its_place,
    is_lasting,
    pod_of,
    pod_path_of,
)
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.engines.kubernetes.records import Storage
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import POD
from testbed.clusters import Cluster
from tests.engines.kubernetes.exec.test_pod_exec import contents, make_tree
from tests.engines.kubernetes.run_samples import running, snapshot
from tests.engines.kubernetes.speaking import (
    client_of,
    record_of,
    role,
    snapshot_of,
    speak,
    until,
    until_ended,
    until_running,
)
from tests.engines.kubernetes.test_bounds import saying, talking

# What a launcher leaves beside its ranks; the rank is a process of its own with one more variable.
RANK = """
import subprocess
plan = {"workdir": NODE + "/work", "env": {"LR": "0.1", "LONGBOAT_NODE": NAME}, "unset": ["FROM_NOBODY"],
        "path_prepend": [], "checkpoint_dir": "/c", "artifacts_dir": "/a",
        "ranks": [{"rank": r, "local_rank": 0, "env": {"RANK": str(r)}} for r in RANKS]}
json.dump(plan, open(NODE + "/plan.json", "w"))
rank = subprocess.Popen(["sleep", "600"], env={**os.environ, **plan["env"], "RANK": str(RANKS[0]), "SECRET": "s3cret"})
json.dump({"ranks": {str(RANKS[0]): {"pid": rank.pid}}}, open(NODE + "/beat.json.new", "w"))
os.rename(NODE + "/beat.json.new", NODE + "/beat.json")
open(NODE + "/work/here", "w").write("of " + NAME)
say(0, "out", "ready")
time.sleep(600)
"""


def start_two(client: Client, **spec: Any) -> None:
    for number in range(2):
        name = f"worker-{number}"
        head = f"NAME = {name!r}\nRANKS = [{2 * number}, {2 * number + 1}]\n"
        speak(client, head + RANK, node=name, **spec)
    until_running(client, 2)
    from longboat.engines.kubernetes.logs.merge import tail_of

    for number in range(2):
        pod = f"train-a0-worker-{number}"
        until("it is ready", lambda pod=pod: "ready" in tail_of(client, pod))  # type: ignore[misc]


def test_places_of_users() -> None:
    record = record_of(
        "ns", checkpoint_dir="/data/ckpt/train-1", artifacts_dir="/longboat/storage/longboat/x/artifacts"
    )
    for text, kind, path in (
        ("train.py", "work", "/longboat/node/work/train.py"),
        ("./a/../b/", "work", "/longboat/node/work/b"),
        (".", "work", "/longboat/node/work"),
        ("artifacts", "artifacts", "/longboat/storage/longboat/x/artifacts"),
        ("artifacts/worker-0/x", "artifacts", "/longboat/storage/longboat/x/artifacts/worker-0/x"),
        ("./checkpoints/step-1", "checkpoints", "/data/ckpt/train-1/step-1"),
        ("checkpoints.txt", "work", "/longboat/node/work/checkpoints.txt"),
    ):
        found = pod_path_of(record, text)
        assert (found.kind, found.path) == (kind, path)
    for text in ("/etc/passwd", "../../state.json", "artifacts/../../x", "checkpoints/../../../etc", "a\nb"):
        with pytest.raises(UsageError):
            pod_path_of(record, text)


def test_what_outlives_the_pods() -> None:
    volumes = (Volume(target="/data", claim="data"), Volume(target="tmp", scratch=True))
    job = Job(name="train", roles=(Role(name="worker", run="true"),), ends=("worker",), volumes=volumes)
    record = record_of("ns", job=job)
    assert is_lasting(record, "/data/ckpt/train-1")
    for path in ("/longboat/node/checkpoints", "/longboat/volumes/1/x", "/longboat/storage/x", "/database"):
        assert not is_lasting(record, path)
    assert is_lasting(record_of("ns", storage=Storage(claim="c")), "/longboat/storage/x")


def test_which_pod_is_meant() -> None:
    found = snapshot(running(0), running(1))
    assert pod_of(found, node=None).node == "worker-0"
    assert pod_of(found, node="worker-1").node == "worker-1"
    assert pod_of(found, node=None, rank=1).node == "worker-1"
    assert pod_of(snapshot(running(1)), node=None).node == "worker-1"
    for where in ({"node": "worker-9"}, {"node": None, "rank": 44}):
        with pytest.raises(NotFound, match="has no"):
            pod_of(found, **where)  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="does not run now"):
        pod_of(snapshot(running(1)), node="worker-0")


@pytest.mark.pods
def test_commands_beside_the_ranks(client: Client, namespace: str, capfd: pytest.CaptureFixture[str]) -> None:
    start_two(client)
    found = snapshot_of(client, record_of(namespace, role(nodes=2, procs=2)))

    def ask(script: str, **where: Any) -> int:
        return execute(client, found, ["sh", "-c", script], **where)

    assert ask("exit 7") == 7
    assert ask("kill -9 $$") == 137
    assert ask('test "$LR" = 0.1 -a -e here -a "$LONGBOAT_NODE" = worker-0 -a "$SECRET" = s3cret') == 0
    assert ask('test "$LONGBOAT_NODE" = worker-1', node="worker-1") == 0
    assert ask('test "$RANK" = 3 -a "$FROM_POD" = yes -a -z "$SECRET"', rank=3) == 0
    assert ask("exit 127") == 127
    for where in ({"node": "worker-9"}, {"rank": 44}):
        with pytest.raises(NotFound):
            ask("true", **where)
    with pytest.raises(NotFound, match="no-such-program"):
        execute(client, found, ["no-such-program"])
    capfd.readouterr()
    assert ask("echo to out; echo to err >&2; cat") == 0
    said = capfd.readouterr()
    assert (said.out, said.err) == ("to out\n", "to err\n")


@pytest.mark.pods
def test_a_terminal_beside_the_ranks(client: Client, namespace: str, cluster: Cluster) -> None:
    """A process of its own with a terminal, as a user has one."""
    start_two(client)
    child, terminal = pty.fork()
    if child == 0:
        try:
            with client_of(cluster, namespace) as own:
                sys.stdin, sys.stdout = open(0), open(1, "w")
                found = snapshot_of(own, record_of(namespace, role(nodes=2, procs=2)))
                os._exit(execute(own, found, ["sh", "-c", "test -t 0 && stty size && read word && echo got-$word"]))
        finally:
            os._exit(99)
    said = b""
    deadline = time.monotonic() + 60
    is_answered = False
    while time.monotonic() < deadline and b"got-it" not in said:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                said += os.read(terminal, 1000)
            except OSError:
                break
        if b" " in said and not is_answered:
            is_answered = True
            os.write(terminal, b"it\r")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, said
    assert b"got-it" in said


@pytest.mark.pods
def test_files_in_and_out_of_running_pods(client: Client, namespace: str, tmp_path: Path) -> None:
    start_two(client)
    record = record_of(namespace, role(nodes=2, procs=2))
    found = snapshot_of(client, record)
    copy_out(client, found, "here", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "of worker-0"
    tree = make_tree(tmp_path / "tree")
    copy_in(client, found, tree, "there", node="worker-1")
    copy_out(client, found, "there", tmp_path / "back", node="worker-1")
    assert contents(tmp_path / "back") == contents(tree)
    (tmp_path / "large").write_bytes(os.urandom(50 << 20))
    copy_in(client, found, tmp_path / "large", ".")
    (tmp_path / "again").mkdir()
    copy_out(client, found, "large", tmp_path / "again")
    assert (tmp_path / "again" / "large").read_bytes() == (tmp_path / "large").read_bytes()
    copy_in(client, found, tmp_path / "copy", "checkpoints/step-1/file")
    copy_out(client, found, "checkpoints", tmp_path / "checkpoints")
    assert (tmp_path / "checkpoints" / "step-1" / "file").read_text() == "of worker-0"
    with pytest.raises(NotFound):
        copy_out(client, found, "there", tmp_path / "other", node="worker-0")
    with pytest.raises(NotFound):
        copy_in(client, found, tmp_path / "nothing", "x")
    with pytest.raises(UsageError):
        copy_in(client, found, tmp_path / "copy", "/etc/passwd")


@pytest.mark.pods
def test_what_is_left_of_a_run_that_has_ended(client: Client, namespace: str, tmp_path: Path) -> None:
    source = {"hostPath": {"path": f"/var/lib/{namespace}", "type": "DirectoryOrCreate"}}
    program = """
base = "/longboat/storage/longboat/train-01234567"
os.makedirs(base + "/checkpoints/step-1"); os.makedirs(base + "/artifacts/worker-0")
open(base + "/checkpoints/step-1/weights", "wb").write(bytes(range(256)))
open(base + "/artifacts/worker-0/plot", "w").write("plot")
"""
    speak(client, program, storage=source)
    until_ended(client)
    base = "/longboat/storage/longboat/train-01234567"
    storage = Storage(path=f"/var/lib/{namespace}", folder="longboat/train-01234567")
    folders = {"checkpoint_dir": f"{base}/checkpoints", "artifacts_dir": f"{base}/artifacts"}
    ended = snapshot_of(client, record_of(namespace, storage=storage, **folders), phase="succeeded")
    copy_out(client, ended, "checkpoints", tmp_path / "kept")
    assert (tmp_path / "kept" / "step-1" / "weights").read_bytes() == bytes(range(256))
    copy_out(client, ended, "artifacts/worker-0/plot", tmp_path, node="worker-0")
    assert (tmp_path / "plot").read_text() == "plot"
    copy_in(client, ended, tmp_path / "plot", "checkpoints/note")
    copy_out(client, ended, "checkpoints/note", tmp_path / "note")
    assert (tmp_path / "note").read_text() == "plot"
    with pytest.raises(NotFound, match="does not exist in train"):
        copy_out(client, ended, "artifacts/worker-7", tmp_path / "none")
    with pytest.raises(NotFound, match="working copies went with its pods"):
        copy_out(client, ended, "train.py", tmp_path / "none")
    with pytest.raises(NotFound, match="has no node"):
        copy_out(client, ended, "artifacts/x", tmp_path / "none", node="worker-9")
    with pytest.raises(NotFound, match="does not run now"):
        execute(client, ended, ["true"])
    without = snapshot_of(client, record_of(namespace), phase="succeeded")
    with pytest.raises(NotFound, match="it had no storage"):
        copy_out(client, without, "checkpoints", tmp_path / "none")
    waits = snapshot_of(client, record_of(namespace), phase="pending")
    with pytest.raises(NotFound, match="has not started"):
        copy_out(client, waits, "checkpoints", tmp_path / "none")
    until(
        "no helper is left",
        lambda: [pod for pod in client.list(POD).items if "longboat-helper" in pod["metadata"]["name"]] == [],
    )


@pytest.mark.parametrize("head", [[running(0)], [running(0, is_unready=True)], []], ids=["well", "silent", "gone"])
def test_any_launcher_knows_which_pod_plays_a_node(tmp_path: Path, head: list[PodView]) -> None:
    """Also where node 0 cannot be asked: what is done to another node must not be done to a spare's pod."""
    job = Job(
        name="train",
        roles=(Role(name="worker", run="x", nodes=3, spares=1),),
        ends=("worker",),
        retries=Retries(count=2),
    )
    seen = snapshot(*head, running(1), running(2), running(3), job_=job)
    answer = {"attempt": 1, "restarts": [{"attempt": 0, "spares": {"worker-1": "worker-3"}}]}
    with talking(saying(json.dumps(answer).encode()), tmp_path) as client:
        placed = in_its_place(client, seen)
    assert pod_of(placed, node="worker-1").name == running(3).name
    assert pod_of(placed, node="worker-3").name == running(1).name
    with pytest.raises(NotFound, match="the run has no node worker-9"):
        pod_of(placed, node="worker-9")
