"""The controller on a real cluster: detached runs are let in, retried, stopped, finished, with nobody attached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.engines.kubernetes.reconcile.controller import WORKERS, Controller
from longboat.engines.kubernetes.record_store import STOP, stop_text
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, NAMESPACE, POD
from longboat.kubeapi.leases import TTL_S
from testbed import api
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.controlling import (
    LONG_S,
    Process,
    controlled,
    state_of,
    traces,
    wait_for_end,
    wait_for_phase,
    wait_for_word,
)
from tests.engines.kubernetes.flavours import FLAVOURS

pytestmark = pytest.mark.pods

FLAKY = 'import os, sys; sys.exit(0 if os.environ["LONGBOAT_ATTEMPT"] == "1" else 5)'
SLEEPING = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.engine.client


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_detached_gang_is_let_in_retried_and_written_down(bench: Bench, client: Client) -> None:
    said: list[str] = []
    with controlled(bench.environment, bench.namespace, said):
        run = bench.engine.submit(bench.submission(FLAKY, nodes=2, retries={"count": 1, "backoff": "0s"}))
        ended = wait_for_end(client, run.name)
    assert (ended.phase, ended.exit_code, [one.number for one in ended.attempts]) == ("succeeded", 0, [0, 1])
    assert ended.attempts[0].failure is not None and ended.attempts[0].failure.exit_code == 5
    assert said == []


def test_each_of_its_namespaces_is_served_and_no_other(
    bench: Bench, client: Client, cluster: Cluster, tmp_path: Path
) -> None:
    places = [bench.namespace, f"{bench.namespace}-two", f"{bench.namespace}-three"]
    for name in places[1:]:
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = api.path_of("ServiceAccount", "v1", name, "default")
        api.wait_for("it takes pods", lambda account=account: api.Api(cluster).get(account) is not None, 30.0)
    others = [Bench(cluster, name, tmp_path / name) for name in places[1:]]
    try:
        with Client.open(namespace=bench.namespace, environment=bench.environment) as own:
            controller = Controller(own, namespaces=places[:2], say=pytest.fail)
            controller.start()
            retries = {"count": 1, "backoff": "0s"}
            for one in (bench, *others):
                one.engine.submit(one.submission(FLAKY, retries=retries))
            ended = [wait_for_end(one.engine.client, "job").phase for one in (bench, others[0])]
            controller.close()
        assert ended == ["succeeded", "succeeded"]
        assert state_of(others[1].engine.client, "job").attempts == (), "nobody looked at it"
    finally:
        for one in others:
            one.engine.close()
            client.delete(NAMESPACE, one.namespace)


def test_a_gang_that_waits_for_another_is_let_in_when_that_has_ended(
    bench: Bench, client: Client, cluster_api: api.Api
) -> None:
    """One GPU for two: the second is told what it waits for, and nobody but the controller lets it in."""
    gpu = f"{bench.namespace}.longboat.test/gpu"
    node = api.path_of("Node", "v1", name="node-0") + "/status"
    cluster_api.merge(node, {"status": {"capacity": {gpu: "1"}, "allocatable": {gpu: "1"}}})
    home = Path(bench.environment["LONGBOAT_HOME"])
    (home / "config.yaml").write_text(
        json.dumps({"kubernetes": {"image": "longboat.test/python:latest", "gpu_resource": gpu}})
    )
    engine = bench.open()
    said: list[str] = []
    try:
        with controlled(bench.environment, bench.namespace, said):
            first = engine.submit(bench.submission(SLEEPING, name="first", gpus=1)).name
            second = engine.submit(bench.submission("print(1)", name="second", gpus=1)).name
            wait_for_phase(client, first, "running")
            api.wait_for("second waits", lambda: "first" in state_of(client, second).reason, LONG_S)
            assert state_of(client, second).phase == "pending"
            client.patch(CONFIG_MAP, first, {"metadata": {"annotations": {STOP: stop_text(1.0, 0.0)}}})
            assert wait_for_end(client, first).phase == "stopped"
            assert wait_for_end(client, second).phase == "succeeded"
    finally:
        engine.close()
        cluster_api.merge(node, {"status": {"capacity": {gpu: None}, "allocatable": {gpu: None}}})
    assert said == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_stop_that_is_asked_for_keeps_its_grace(bench: Bench, client: Client) -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(21))
print("ready", flush=True)
time.sleep(600)
"""
    with controlled(bench.environment, bench.namespace, []):
        run = bench.engine.submit(bench.submission(code)).name
        wait_for_word(client, run, "ready")
        client.patch(CONFIG_MAP, run, {"metadata": {"annotations": {STOP: stop_text(1.0, 30.0)}}})
        ended = wait_for_end(client, run)
    assert (ended.phase, ended.exit_code) == ("stopped", 21), ended.reason


def test_one_bad_record_is_told_of_once_and_stops_nobody(bench: Bench, client: Client) -> None:
    labels = {"app.kubernetes.io/managed-by": "longboat", "longboat.dev/kind": "run", "longboat.dev/run": "bad"}
    for name, data in {"bad": {"record": "{", "state": "{}"}, "worse": {"record": "{}", "state": "["}}.items():
        metadata = {"name": name, "labels": {**labels, "longboat.dev/run": name}}
        client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    said: list[str] = []
    with controlled(bench.environment, bench.namespace, said):
        run = bench.engine.submit(bench.submission("print(1)"))
        assert wait_for_end(client, run.name).phase == "succeeded"
        api.wait_for("both are told of", lambda: len(said) >= 2, LONG_S)
    assert sorted(said)[0].startswith(f"{bench.namespace}/bad: the record of run bad is damaged")
    assert len(said) == 2, said


def test_what_a_slow_process_makes_after_the_end_is_removed(bench: Bench, client: Client) -> None:
    """Another process decided on a retry, was stopped for a while, and makes its Job when the run has long ended."""
    run = bench.engine.submit(bench.submission("raise SystemExit(1)")).name
    with controlled(bench.environment, bench.namespace, []):
        assert wait_for_end(client, run).phase == "failed"
        (job,) = client.list(JOB).items
        late = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": f"{run}-a1-worker",
                "labels": {**job["metadata"]["labels"], "longboat.dev/attempt": "1"},
                "ownerReferences": job["metadata"]["ownerReferences"],
            },
            "spec": {key: job["spec"][key] for key in ("parallelism", "completions", "completionMode", "template")},
        }
        template = late["spec"]["template"]
        for labels in (template["metadata"]["labels"],):
            for label in [one for one in labels if "controller-uid" in one or "job-name" in one]:
                del labels[label]
            labels["longboat.dev/attempt"] = "1"
        client.create(late)
        api.wait_for("it is gone", lambda: client.find(JOB, f"{run}-a1-worker") is None, LONG_S)


def test_a_namespace_that_is_deleted_under_its_runs_is_forgotten(
    bench: Bench, client: Client, cluster: Cluster, tmp_path: Path, cluster_api: api.Api
) -> None:
    """A controller of all namespaces goes on with the others, and says nothing more about the one that went."""
    gone = f"{bench.namespace}-gone"
    cluster_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": gone}})
    account = api.path_of("ServiceAccount", "v1", gone, "default")
    api.wait_for("it has its service account", lambda: cluster_api.get(account) is not None, LONG_S)
    other = Bench(cluster, gone, tmp_path / "gone")
    said: list[str] = []
    with controlled(bench.environment, gone, said) as controller:
        run = other.engine.submit(other.submission(SLEEPING, nodes=2)).name
        wait_for_phase(other.engine.client, run, "running")
        cluster_api.delete(api.path_of("Namespace", "v1", name=gone))
        api.wait_for("it is gone", lambda: client.find(NAMESPACE, gone) is None, LONG_S)
        api.wait_for("it is forgotten", lambda: not controller._open and not controller._queue._due, LONG_S)
    other.engine.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_second_takes_over_from_one_that_was_killed(bench: Bench, client: Client, tmp_path: Path) -> None:
    environment = {**bench.environment, "LONGBOAT_POD": "one"}
    first = Process(environment, bench.namespace, tmp_path / "first.log")
    second = None
    try:
        first.until_leader()
        second = Process({**environment, "LONGBOAT_POD": "two"}, bench.namespace, tmp_path / "second.log")
        run = bench.engine.submit(bench.submission(FLAKY, nodes=2, retries={"count": 1, "backoff": "0s"})).name
        first.kill()
        assert not second.leads
        ended = wait_for_end(client, run, LONG_S + 2 * TTL_S)
        assert (ended.phase, ended.exit_code) == ("succeeded", 0)
        assert second.leads
        assert second.end() == 0
        assert [one for one in traces(client) if one.startswith("Lease")] == [], "who ends in peace leaves no Lease"
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()


def test_who_leads_no_more_takes_no_new_turn(bench: Bench, client: Client) -> None:
    leads = [True]
    with Client.open(namespace=bench.namespace, environment=bench.environment) as own:
        controller = Controller(own, namespaces=[bench.namespace], say=print, may_work=lambda: leads[0])
        controller.start()
        run = bench.engine.submit(bench.submission("print(1)")).name
        assert wait_for_end(client, run).phase == "succeeded"
        leads[0] = False
        other = bench.engine.submit(bench.submission("print(1)")).name

        def phases() -> set[str]:
            return {pod["status"]["phase"] for pod in client.list(POD, labels=f"longboat.dev/run={other}").items}

        api.wait_for("its pods have ended", lambda: phases() == {"Succeeded"}, LONG_S)
        api.wait_for("no worker is left", lambda: len(controller._workers.ended()) == WORKERS, LONG_S)
        assert not state_of(client, other).is_final
        controller.close()
