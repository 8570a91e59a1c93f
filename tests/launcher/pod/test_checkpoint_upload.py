"""Launchers that send checkpoints to a real store, and fetch them from there before their ranks start."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.storage.checkpoint_mirror import Mirror
from longboat.storage.checkpoints import complete_steps
from longboat.storage.stores.registry import open_store
from longboat.storage.urls import object_url
from tests.launcher.nodes import Node
from tests.launcher.pods import Pods
from tests.storage.faulty import Between, between
from tests.storage.realstores import ALONE, READER, Running

pytestmark = pytest.mark.stores
Make = Callable[..., Pods]

SAVES = """
import longboat, os, time
def save(step, text="weights"):
    with longboat.checkpoint(step) as folder:
        open(os.path.join(folder, "model.bin"), "w").write(text + str(step))
"""
WAITS = """
while not os.path.exists(os.path.join(os.environ["SHARED"], "go")):
    time.sleep(0.02)
"""


@pytest.fixture
def url() -> str:
    return f"s3://data/ckpt/{uuid.uuid4().hex}"


@pytest.fixture
def faulty(s3: Running) -> Iterator[Between]:
    with between(s3.url) as state:
        yield state


def stored(url: str, server: Running) -> list[str]:
    """Names of what is complete in the store."""
    return [name for _, name in Mirror(url, server.environment).complete()]


def objects(url: str, server: Running) -> list[str]:
    where = object_url(url + "/")
    return sorted(found.key[len(where.key) :] for found in open_store(where, server.environment).listed(where.key))


def gang_of(pods: Pods, url: str, place: int, **more: Any) -> dict[str, Any]:
    """Each pod has a folder of its own, as in a cluster."""
    folder = str(pods.node(place) / "checkpoints")
    return {"checkpoints": {"dir": folder, "keep": 3, "resume": None, "store": url, **more}}


def run(pods: Pods, url: str, environment: Mapping[str, str], **more: Any) -> list[int]:
    for place in range(len(pods.names)):
        pods.start(place, gang=gang_of(pods, url, place, **more), env=environment)
    return [pods.wait(place) for place in range(len(pods.names))]


def node_of(make_node: Callable[..., Node], script: str, url: str, **keys: Any) -> Node:
    node = make_node(["python", "train.py"], checkpoint_store=url, keep_checkpoints=2, **keys)
    node.plan["env"]["SHARED"] = str(node.folder)
    node.script(script)
    (node.folder / "checkpoints").mkdir()
    return node


def test_what_was_complete_is_in_the_store_at_the_end(
    s3: Running,
    url: str,
    make_pods: Make,
) -> None:
    pods = make_pods(script=SAVES + "save(1); save(2); os.mkdir(longboat.checkpoint_dir() + '/step-9')")
    assert run(pods, url, s3.environment) == [0]
    assert stored(url, s3)[-1] == "step-2"
    assert pods.message()["checkpoint"] == f"{url}/step-2" and pods.message()["exit_code"] == 0
    assert "step-9" not in json.dumps(objects(url, s3))


@pytest.mark.parametrize("end", ["raise SystemExit(7)", "os.kill(os.getpid(), 9)"])
def test_a_failure_is_no_reason_not_to_send(
    s3: Running,
    url: str,
    make_node: Callable[..., Node],
    end: str,
) -> None:
    node = node_of(make_node, SAVES + f"save(3)\n{end}", url)
    assert node.run(env=dict(s3.environment)) == (137 if "kill" in end else 7)
    assert stored(url, s3) == ["step-3"]
    assert node.json("mirrored.json") == {"checkpoint": f"{url}/step-3"}


def test_they_are_sent_while_it_runs_and_old_ones_go_in_both_places(
    s3: Running,
    url: str,
    make_node: Callable[..., Node],
) -> None:
    script = SAVES + "for step in range(1, 5):\n    save(step)\n"
    script += "    while not os.path.exists(os.environ['SHARED'] + '/%d' % step): time.sleep(0.02)\n"
    node = node_of(make_node, script, url)
    node.start(env=dict(s3.environment))
    for step in range(1, 5):
        node.until(lambda step=step: f"step-{step}" in stored(url, s3))
        node.until(lambda step=step: len(complete_steps(node.folder / "checkpoints")) <= 2)
        (node.folder / str(step)).touch()
    assert node.wait() == 0
    assert stored(url, s3) == ["step-3", "step-4"]
    assert [step for step, _ in complete_steps(node.folder / "checkpoints")] == [3, 4]


def test_where_all_are_kept_all_are_sent_and_a_pod_has_only_the_newest(
    s3: Running, url: str, make_pods: Make, make_node: Callable[..., Node]
) -> None:
    script = SAVES + "for step in range(1, 6): save(step)"
    pods = make_pods(script=script)
    assert run(pods, url, s3.environment, keep=0) == [0]
    assert stored(url, s3) == [f"step-{step}" for step in range(1, 6)]
    assert [step for step, _ in complete_steps(pods.node(0) / "checkpoints")] == [5]
    assert pods.message()["checkpoint"] == f"{url}/step-5"
    node = node_of(make_node, script, url + "-node")
    node.plan["keep_checkpoints"] = 0
    assert node.run(env=dict(s3.environment)) == 0
    assert len(stored(url + "-node", s3)) == len(complete_steps(node.folder / "checkpoints")) == 5


def test_a_stop_leaves_time_to_send(s3: Running, url: str, make_node: Callable[..., Node]) -> None:
    script = SAVES + "longboat.should_stop()\nprint('up', flush=True)\n"
    script += "while not longboat.should_stop(): time.sleep(0.02)\nsave(8)"
    node = node_of(make_node, script, url)
    node.start(env=dict(s3.environment))
    node.until_log("up")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert stored(url, s3) == ["step-8"] and node.outcome["ended_by"] == "stop"


def test_the_same_step_again_is_another_checkpoint(
    s3: Running,
    url: str,
    make_node: Callable[..., Node],
    tmp_path: Path,
) -> None:
    node = node_of(make_node, SAVES + "save(1)" + WAITS + "save(1, 'other')", url)
    node.start(env=dict(s3.environment))
    node.until(lambda: stored(url, s3) == ["step-1"])
    (node.folder / "go").touch()
    assert node.wait() == 0
    found = Mirror(url, s3.environment).fetch_newest(tmp_path / "copy")
    assert found is not None and (found / "model.bin").read_text() == "other1"


def test_a_store_that_fails_is_tried_again(
    s3: Running,
    faulty: Between,
    url: str,
    make_node: Callable[..., Node],
) -> None:
    faulty.answers = [(503, "SlowDown")] * 7  # more than one try is patient for
    node = node_of(make_node, SAVES + "save(1)" + WAITS, url)
    node.start(env={**s3.environment, "AWS_ENDPOINT_URL": faulty.url})
    node.until(lambda: stored(url, s3) == ["step-1"])
    (node.folder / "go").touch()
    assert node.wait() == 0


def test_what_cannot_be_sent_is_told_and_changes_nothing(
    s3: Running,
    url: str,
    make_pods: Make,
    make_node: Callable[..., Node],
    tmp_path: Path,
) -> None:
    reader = {**ALONE, **READER, "AWS_ENDPOINT_URL": s3.url}
    pods = make_pods(script=SAVES + "save(1)")
    assert run(pods, url, reader) == [0]
    assert "the newest checkpoint was not sent: s3://data/ckpt/" in pods.stderr() and stored(url, s3) == []
    assert pods.stderr().count("was not sent") == 1
    assert pods.message()["checkpoint"] is None and pods.message()["exit_code"] == 0
    assert READER["AWS_SECRET_ACCESS_KEY"] not in pods.stderr() + json.dumps(pods.message())


def test_killed_in_the_middle_it_leaves_none_that_is_complete(
    s3: Running,
    faulty: Between,
    url: str,
    make_node: Callable[..., Node],
) -> None:
    script = SAVES + "for n in range(40):\n    pass\n"
    script += "with longboat.checkpoint(6) as folder:\n"
    script += "    for n in range(40): open(os.path.join(folder, 'part-%d' % n), 'wb').write(os.urandom(100000))\n"
    node = node_of(make_node, script + WAITS, url)
    process = node.start(env={**s3.environment, "AWS_ENDPOINT_URL": faulty.url})

    def writes() -> int:
        return sum(method == "PUT" for method, _, _ in faulty.requests)

    while writes() < 5:
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert stored(url, s3) == [] and objects(url, s3)
    node.close()
    # The next attempt finds the folder as it was, and sends it.
    again = node_of(make_node, "pass", url, checkpoint_dir=node.plan["checkpoint_dir"])
    assert again.run(env=dict(s3.environment)) == 0
    assert stored(url, s3) == ["step-6"] and len(objects(url, s3)) == 41


RESUMES = """
import longboat, os
folder = longboat.resume_from()
print(os.path.basename(folder), open(os.path.join(folder, "model.bin")).read())
assert folder.startswith(os.environ["LONGBOAT_NODE_DIR"])
"""


def send(url: str, server: Running, folder: Path, *steps: int, attempt: int | None = None) -> None:
    for step in steps:
        path = folder / f"step-{step}"
        path.mkdir(parents=True)
        (path / "model.bin").write_text(f"weights{step}")
        (path / ".complete").write_text("{}")
        Mirror(url, server.environment, attempt=attempt).send(path)


def test_every_node_fetches_the_newest(s3: Running, url: str, make_pods: Make, tmp_path: Path) -> None:
    send(url, s3, tmp_path / "sent", 5, 12)
    pods = make_pods(script=RESUMES, roles={"worker": 2}, plan={"attempt": 1})
    assert run(pods, url, s3.environment) == [0, 0]
    for place in range(2):
        assert pods.log(place, f"{place}.out") == "step-12 weights12\n"
        assert pods.message(place)["resumed_from"] == f"{url}/step-12"
    assert "fetched step-12 of" in pods.log(1, "setup.out")
    assert pods.message(0)["checkpoint"] == f"{url}/step-12"


def test_a_node_that_found_another_fetches_what_node_0_resumes_from(
    s3: Running,
    url: str,
    make_pods: Make,
    tmp_path: Path,
) -> None:
    send(url, s3, tmp_path / "sent", 5)
    wait = 'test "$LONGBOAT_NODE" = worker-1 || while [ ! -e "$SHARED/go" ]; do sleep 0.05; done'
    pods = make_pods(script=RESUMES, roles={"worker": 2}, plan={"attempt": 1, "setup": wait})
    pods.start(0, gang=gang_of(pods, url, 0), env=s3.environment)
    pods.until(lambda: (pods.node(0) / "checkpoints" / "step-5").exists())
    store, key = open_store(object_url(url), s3.environment), object_url(url).key
    for name in ("model.bin", ".complete"):  # by hand, so that it is of no attempt
        store.put(f"{key}/step-6/{name}", b"")
    pods.start(1, gang=gang_of(pods, url, 1), env=s3.environment)
    pods.until(lambda: (pods.node(1) / "checkpoints" / "step-6").exists())
    (pods.folder / "go").touch()
    assert [pods.wait(place) for place in range(2)] == [0, 0]
    assert [pods.log(place, f"{place}.out") for place in range(2)] == ["step-5 weights5\n"] * 2


def test_what_an_attempt_before_sends_once_this_one_has_started_is_not_resumed_from(
    s3: Running, url: str, make_pods: Make, tmp_path: Path
) -> None:
    """A pod of it was not quite gone, or lives on a machine that is cut off."""
    send(url, s3, tmp_path / "sent", 5, attempt=0)
    wait = 'test "$LONGBOAT_NODE" = worker-1 || while [ ! -e "$SHARED/go" ]; do sleep 0.05; done'
    pods = make_pods(script=RESUMES, roles={"worker": 2}, plan={"attempt": 1, "setup": wait})
    pods.start(0, gang=gang_of(pods, url, 0), env=s3.environment)
    pods.until(lambda: (pods.node(0) / "checkpoints" / "step-5").exists())
    with pytest.raises(EngineError, match="attempt 2 of the run has started"):
        send(url, s3, tmp_path / "later", 6, attempt=0)
    send(url, s3, tmp_path / "latest", 7)  # had looked before, and says that it is of attempt 0 all the same
    pods.start(1, gang=gang_of(pods, url, 1), env=s3.environment)
    pods.until(lambda: (pods.node(1) / "checkpoints" / "step-5").exists())
    (pods.folder / "go").touch()
    assert [pods.wait(place) for place in range(2)] == [0, 0]
    assert [pods.log(place, f"{place}.out") for place in range(2)] == ["step-5 weights5\n"] * 2


def test_of_several_roles_one_writes_and_sends(s3: Running, url: str, make_pods: Make) -> None:
    """The first that decides success, wherever it stands; the others' are thrown away, and they are told."""
    script = SAVES + "save(1, os.environ['LONGBOAT_NODE'])"
    roles = {"ps": 1, "chief": 1, "worker": 2}
    pods = make_pods(script=script, roles=roles, deciding=["worker", "chief"])
    pods.gang["deciding"] = ["chief", "worker"]
    assert run(pods, url, s3.environment) == [0] * 4
    assert stored(url, s3) == ["step-1"]
    assert (pods.node(1) / "checkpoints" / "step-1" / "model.bin").read_text() == "chief-01"
    for place in (0, 2, 3):
        assert (
            not complete_steps(pods.node(place) / "checkpoints") and not (pods.node(place) / "mirrored.json").exists()
        )
    assert "checkpoints of worker-0 are not kept: chief-0 writes those of the run" in pods.log(2, "2.err")


def test_of_several_roles_one_writes_to_a_shared_folder(make_pods: Make) -> None:
    pods = make_pods(script=SAVES + "save(1, os.environ['LONGBOAT_NODE'])", roles={"ps": 1, "chief": 1, "worker": 2})
    pods.gang["deciding"] = ["chief", "worker"]
    assert pods.run() == [0] * 4
    assert os.listdir(pods.folder / "checkpoints") == ["step-1"]
    assert (pods.folder / "checkpoints" / "step-1" / "model.bin").read_text() == "chief-01"
    marker = json.loads((pods.folder / "checkpoints" / "step-1" / ".complete").read_text())
    assert (marker["attempt"], marker["node"], marker["uid"]) == (0, "chief-0", pods.uid)


def test_an_attempt_fences_off_those_before_it_in_a_shared_folder(make_pods: Make) -> None:
    pods = make_pods(script=SAVES + "print(longboat.resume_from()); save(2)", plan={"attempt": 2})
    folder = pods.folder / "checkpoints"
    (folder / "step-1").mkdir(parents=True)
    (folder / "step-1" / ".complete").write_text('{"attempt": 0}')
    assert pods.run() == [0]
    assert pods.log(0, "0.out") == f"{folder / 'step-1'}\n"
    assert sorted(os.listdir(folder)) == [".attempt-2", "step-1", "step-2"]
    late = make_pods(script=SAVES + "save(9)", plan={"attempt": 1, "uid": pods.uid})
    late.gang["checkpoints"]["dir"] = str(folder)
    assert late.run() == [209]
    assert "attempt 3 of the run has started" in late.message()["message"]


def test_a_run_begins_with_what_another_one_sent(
    s3: Running,
    url: str,
    make_pods: Make,
    tmp_path: Path,
) -> None:
    old = url + "-old"
    send(old, s3, tmp_path / "sent", 3, 4)
    for number, (wanted, step) in enumerate([(old, 4), (f"{old}/step-3", 3)]):
        pods = make_pods(script=SAVES + RESUMES + "save(100)", roles={"worker": 2})
        assert run(pods, f"{url}{number}", s3.environment, resume=wanted) == [0, 0]
        assert pods.log(1, "1.out") == f"step-{step} weights{step}\n"
        assert pods.message(1)["resumed_from"] == f"{old}/step-{step}"
        assert stored(f"{url}{number}", s3) == ["step-100"]
    pods = make_pods(script="pass")
    assert run(pods, url, s3.environment, resume=f"{old}-none") == [209]
    assert f"no complete checkpoint to resume from in {old}-none" in pods.message()["message"]


def test_a_store_that_cannot_be_reached_is_told_before_the_ranks_start(
    s3: Running,
    url: str,
    make_pods: Make,
) -> None:
    pods = make_pods(script="print('never')")
    assert run(pods, url, {**ALONE, "AWS_ENDPOINT_URL": s3.url, "AWS_ACCESS_KEY_ID": ""}) == [209]
    message = pods.message()
    assert message["cause"] == "setup" and "checkpoints cannot be fetched: s3://data/ckpt/" in message["message"]
    assert "no credentials were found" in message["message"] and pods.log(0, "0.out") == ""


def test_only_one_node_sends(s3: Running, url: str, make_pods: Make) -> None:
    script = SAVES + "open(longboat.checkpoint_dir() + '/' + os.environ['LONGBOAT_NODE'], 'w').close(); save(1)"
    pods = make_pods(script=script, roles={"worker": 2})
    assert run(pods, url, s3.environment) == [0, 0]
    assert stored(url, s3) == ["step-1"]
    assert not (pods.node(1) / "mirrored.json").exists() and (pods.node(0) / "mirrored.json").exists()
    assert not complete_steps(pods.node(1) / "checkpoints")
