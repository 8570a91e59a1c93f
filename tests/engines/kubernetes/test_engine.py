"""The engine on a real cluster, where the conformance suite does not look: interruptions, strangers, counting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from longboat.core.errors import LongboatError, NotFound, Refused
from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.reconcile.reconciler import turn
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, POD, Kind
from testbed import api
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.controlling import OURS

pytestmark = pytest.mark.pods


def test_without_a_storage_a_run_still_keeps_its_logs_and_codes(bench: Bench) -> None:
    run = bench.engine.submit(
        bench.submission("print('hello'); raise SystemExit(4)", retries={"count": 1, "backoff": "0s"})
    )
    ended = bench.engine.wait(run.name, timeout_s=90)
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("failed", 4, 2)
    lines = [line.data for line in bench.engine.logs(run.name, LogQuery())]
    assert lines == [b"hello\n", b"hello\n"]


def test_a_configmap_of_somebody_else_is_no_run(bench: Bench) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"record": "{}"}}
    bench.engine.client.create(body)
    with pytest.raises(NotFound):
        bench.engine.status("theirs")
    with pytest.raises(NotFound):
        bench.engine.delete("theirs")
    with pytest.raises(Refused, match="not a run"):
        bench.engine.submit(bench.submission(run_id="theirs"))
    assert bench.engine.submit(bench.submission("print(1)", name="theirs")).name == "theirs-2"
    assert bench.engine.client.get(CONFIG_MAP, "theirs")["data"] == {"record": "{}"}


def test_a_damaged_record_is_told_of_and_can_be_removed(bench: Bench) -> None:
    run = bench.engine.submit(bench.submission("print(1)"))
    bench.engine.wait(run.name, timeout_s=90)
    bench.engine.client.patch(CONFIG_MAP, run.name, {"data": {"record": "{"}})
    assert list(bench.engine.list()) == []
    assert any("damaged" in text for text in bench.notices)
    bench.engine.delete(run.name)
    assert bench.engine.client.find(CONFIG_MAP, run.name) is None


@pytest.mark.parametrize("text", ["{", '{"name": "other"}', None])
def test_by_force_a_run_is_removed_whose_record_cannot_be_read(bench: Bench, text: str | None) -> None:
    """While it runs, by labels and owner: nothing that the record says is needed for it."""
    run = bench.engine.submit(bench.submission("import time; time.sleep(600)", retries=1)).name
    client = bench.engine.client
    api.wait_for("it has a pod", lambda: bool(client.list(POD).items), 90.0, every_s=0.2)
    client.patch(CONFIG_MAP, run, {"data": {"record": text}})
    words = [sys.executable, "-m", "longboat", "rm", run, "--engine", "kubernetes", "--namespace", bench.namespace]

    def typed(*more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **bench.environment}
        return subprocess.run([*words, *more], env=environment, capture_output=True, text=True, check=False)

    refused = typed()
    assert refused.returncode == 205 and "longboat rm --force" in refused.stderr, refused.stderr
    removed = typed("--force")
    assert (removed.returncode, removed.stdout) == (0, f"{run}\n"), removed.stderr
    left = [one for kind in (CONFIG_MAP, JOB, POD) for one in client.list(kind, labels=OURS).items]
    assert left == []


def test_a_submission_that_was_interrupted_ends_as_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submitter dies between the record and the code; whoever looks later finds no way to go on, and says so."""
    from longboat.engines.kubernetes.reconcile import handover
    from longboat.engines.kubernetes.submit import submission

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    engine = bench.engine
    with monkeypatch.context() as patched:
        patched.setattr(submission, "send", die)
        patched.setattr(engine.client, "delete", die)
        with pytest.raises(Killed):
            engine.submit(bench.submission("print(1)"))
    assert engine.status("job").phase == "pending"
    monkeypatch.setattr(handover, "HANDOVER_S", 0.0)
    ended = engine.status("job")
    assert (ended.phase, ended.cause) == ("failed", "lost") and "interrupted" in ended.reason
    engine.delete("job")


@pytest.mark.parametrize(("first", "seen"), [("", []), ("print('ready', flush=True); ", [b"ready\n"])])
def test_a_follower_of_a_run_that_is_removed_is_told_so(bench: Bench, first: str, seen: list[bytes]) -> None:
    """Whoever removes the record removes the run: that is no end of the log, however much of it was seen."""
    run = bench.engine.submit(bench.submission(f"{first}import time; time.sleep(600)")).name
    api.wait_for("it runs", lambda: bench.engine.status(run).phase == "running", 90.0, every_s=0.2)
    lines: list[bytes] = []
    told: list[LongboatError] = []
    follower = bench.open()

    def follow() -> None:
        try:
            for line in follower.logs(run, LogQuery(follow=True)):
                if line.rank >= 0:
                    lines.append(line.data)
        except LongboatError as error:
            told.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    api.wait_for("it follows", lambda: lines == seen and follower.client.requests > 4, 90.0, every_s=0.1)
    bench.engine.client.delete(CONFIG_MAP, run)
    thread.join(90)
    assert not thread.is_alive() and [type(error) for error in told] == [NotFound]
    assert run in told[0].message and lines == seen
    follower.close()


def test_jobs_that_somebody_deletes_fail_the_run(bench: Bench) -> None:
    run = bench.engine.submit(bench.submission("import time; print('ready', flush=True); time.sleep(600)"))
    lines = bench.engine.logs(run.name, LogQuery(follow=True))
    assert next(lines).data == b"ready\n"
    (job,) = bench.engine.client.list(JOB).items
    bench.engine.client.delete(JOB, job["metadata"]["name"])
    ended = bench.engine.wait(run.name, timeout_s=90)
    assert ended.phase == "failed" and ended.cause in ("lost", "preemption"), ended.reason


def test_a_pod_that_is_evicted_is_a_preemption_and_is_tried_again(bench: Bench) -> None:
    code = """
import os, time
print("ready", flush=True)
time.sleep(600 if os.environ["LONGBOAT_ATTEMPT"] == "0" else 0)
"""
    run = bench.engine.submit(
        bench.submission(code, nodes=2, retries={"count": 1, "on": ["preemption"], "backoff": "0s"})
    )
    lines = bench.engine.logs(run.name, LogQuery(follow=True))
    assert [next(lines).data for _ in range(2)] == [b"ready\n"] * 2
    victim = next(pod for pod in bench.engine.client.list(POD).items if "-1-" in pod["metadata"]["name"])
    bench.engine.client.delete(POD, victim["metadata"]["name"])
    ended = bench.engine.wait(run.name, timeout_s=120)
    assert (ended.phase, ended.attempt) == ("succeeded", 1), ended.reason
    failure = ended.attempts[0].failure
    assert failure is not None and failure.cause == "preemption", failure


def test_an_image_that_is_not_there_fails_with_its_name(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from longboat.engines.kubernetes.reconcile import decide

    monkeypatch.setattr(decide, "TROUBLE_S", 1.0)
    monkeypatch.setattr(decide, "SLOW_TROUBLE_S", 1.0)
    run = bench.engine.submit(bench.submission("print(1)", image="longboat.test/nothing:1"))
    ended = bench.engine.wait(run.name, timeout_s=90)
    assert (ended.phase, ended.cause, ended.exit_code) == ("failed", "image", 209), ended.reason
    assert "longboat.test/nothing:1" in ended.reason


def test_a_stop_does_not_wait_for_the_pull_of_an_image(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that pulls looks at its pod again only when it has done so: what has not started goes by force."""
    client = bench.engine.client
    run = bench.engine.submit(bench.submission(image="longboat.test/nothere:1")).name
    while not any(pod["spec"].get("nodeName") for pod in client.list(POD, labels=OURS).items):
        pass
    graces: list[int | None] = []
    delete = client.delete

    def noted(kind: Kind, name: str, **options: Any) -> object:
        graces.extend([options.get("grace_s")] if kind is POD else [])
        return delete(kind, name, **options)

    monkeypatch.setattr(client, "delete", noted)
    bench.engine.stop(run, grace_s=5)
    ended = bench.engine.wait(run, timeout_s=90)
    assert (ended.phase, ended.reason) == ("stopped", "stopped before its ranks started")
    assert set(graces) == {0}


def test_an_image_without_python_says_so(bench: Bench) -> None:
    run = bench.engine.submit(bench.submission("print(1)", image="longboat.test/pause:latest"))
    ended = bench.engine.wait(run.name, timeout_s=90)
    assert (ended.phase, ended.cause, ended.exit_code) == ("failed", "image", 209), ended.reason
    assert "python3" in ended.reason


def test_a_turn_that_finds_nothing_to_do_writes_nothing(bench: Bench) -> None:
    run = bench.engine.submit(bench.submission("print(1)"))
    bench.engine.wait(run.name, timeout_s=90)
    before = bench.engine.client.get(CONFIG_MAP, run.name)["metadata"]["resourceVersion"]
    for _ in range(3):
        turn(bench.engine.client, run.name)
    assert bench.engine.client.get(CONFIG_MAP, run.name)["metadata"]["resourceVersion"] == before


def test_a_trial_leaves_nothing_behind(bench: Bench) -> None:
    """Refused by the API server itself, after everything was looked at: no object is there."""
    limits = {"type": "Container", "max": {"memory": "64Mi"}}
    bench.engine.client.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small", "namespace": bench.namespace},
            "spec": {"limits": [limits]},
        }
    )
    with pytest.raises(Refused):
        bench.engine.submit(bench.submission("print(1)", memory="128Mi"))
    assert list(bench.engine.list()) == []
