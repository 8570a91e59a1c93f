"""Every right of the controller is one that its turns use, and they use no other: its requests are counted."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.install.controller_manifests import CLUSTER, ELECTION, RUNS
from longboat.engines.kubernetes.reconcile.controller import Controller
from longboat.engines.kubernetes.record_store import STOP, stop_text
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.status import brief_status
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import ApiRequest, Transport
from longboat.kubeapi.kinds import CONFIG_MAP, LEASE
from longboat.kubeapi.leases import GATE
from testbed import api
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.controlling import wait_for_end, wait_for_word

pytestmark = [pytest.mark.pods, pytest.mark.soak]

Right = tuple[str, str, str]

ELSEWHERE = ("jobset.x-k8s.io", "kueue.x-k8s.io", "resource.k8s.io", "apps")
"""Used where these are served, by the same code as Jobs; this cluster has none of them. Deployments are changed by what
has services follow, with these rights in `tests/serving/kubernetes/test_controller.py`."""
RARE = {("", "nodes", "get"), ("", "pods/exec", "create"), ("", "pods/exec", "get")}
"""A node that may be lost; the server asks for one or the other to run a command, by its version."""
RARE |= {("", "services", "get"), ("batch", "jobs", "get")}
"""An object of an attempt that is there already, made by another process or planted: is it the run's?"""
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/[^/]+)?"
    r"/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[^/]+))?$"
)
GRACEFUL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(21))
print("ready", flush=True)
time.sleep(600)
"""
FLAKY = 'import os, sys; sys.exit(0 if os.environ["LONGBOAT_ATTEMPT"] == "1" else 5)'


def right_of(ask: ApiRequest) -> Right:
    parts = urlsplit(ask.path)
    found = PATH.match(parts.path)
    assert found is not None, ask.path
    kind = found["kind"] + (f"/{found['part']}" if found["part"] else "")
    reading = "watch" if "watch=true" in parts.query else "get" if found["name"] else "list"
    verbs = {"GET": reading, "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
    return (found["group"] or "", kind, verbs[ask.method])


def test_the_rights_are_those_that_turns_use(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[Right] = set()
    own = Client.open(namespace=bench.namespace, environment=bench.environment)
    attempt = Transport._try

    def counted(self: Transport, ask: ApiRequest, *rest: Any) -> Any:
        if self is own.transport:
            used.add(right_of(ask))
        return attempt(self, ask, *rest)

    monkeypatch.setattr(Transport, "_try", counted)
    client = bench.engine.client
    abandoned = {"holderIdentity": "", "leaseDurationSeconds": 1}
    client.create({"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": {"name": GATE}, "spec": abandoned})
    controller = Controller(own, namespaces=[bench.namespace], say=pytest.fail)
    lose_first_turns(monkeypatch)
    with own:
        controller.start()
        try:
            go_through_everything(bench, used)
        finally:
            controller.close()
    allowed = {(rule.group, rule.resource, verb) for rule in (*RUNS, *CLUSTER, *ELECTION) for verb in rule.verbs}
    assert used - allowed == set(), "not allowed"
    unused = {right for right in allowed - used if right[0] not in ELSEWHERE}
    assert unused <= RARE, "allowed for nothing"
    assert ("", "pods/exec", "get") in used or ("", "pods/exec", "create") in used


def lose_first_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitters leave before they have served the gate, so that the controller has to."""
    monkeypatch.setattr(KubernetesEngine, "_first_status", lambda _, record: brief_status(record, State()))


def go_through_everything(bench: Bench, used: set[Right]) -> None:
    """The gate, a claim, a retry, a stop with its grace, a container that a volume keeps from starting."""
    engine, client = bench.engine, bench.engine.client
    volumes = {"/data": {"claim": "data", "size": "1Mi"}}
    held = engine.submit(bench.submission("", name="held", cpus=0.05, volumes=volumes))
    retries = {"count": 1, "backoff": "0s"}
    flaky = engine.submit(bench.submission(FLAKY, name="flaky", nodes=2, cpus=0.05, retries=retries)).name
    graceful = engine.submit(bench.submission(GRACEFUL, name="graceful")).name
    nowhere = {"/data": {"nfs": "127.0.0.1:/nowhere"}}
    stuck = engine.submit(bench.submission("", name="stuck", volumes=nowhere)).name
    wait_for_word(client, graceful, "ready")
    ask_stop(bench, graceful, 30.0)
    assert wait_for_end(client, graceful).exit_code == 21
    assert wait_for_end(client, flaky).phase == "succeeded"
    ask_stop(bench, held.name, 0.0)
    assert wait_for_end(client, held.name).phase == "stopped"
    api.wait_for("it is asked why the pod does not start", lambda: ("", "events", "list") in used, 120.0)
    ask_stop(bench, stuck, 0.0)
    assert wait_for_end(client, stuck).phase == "stopped"


def ask_stop(bench: Bench, run: str, grace_s: float) -> None:
    asked = {"metadata": {"annotations": {STOP: stop_text(1.0, grace_s)}}}
    bench.engine.client.patch(CONFIG_MAP, run, asked)
