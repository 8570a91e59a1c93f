"""Whoever serves the gate stops in time: slow servers, stopped processes, other namespaces, records nobody can read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.gate import gate_lease
from longboat.engines.kubernetes.gate.gate_lease import hold_gates
from longboat.engines.kubernetes.gate.serve import GateGroup, ask_gate, share_gate
from longboat.engines.kubernetes.observe.observe import observe
from longboat.engines.kubernetes.reconcile.controller import Controller
from longboat.engines.kubernetes.reconcile.reconciler import Reconciler, turn
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import LeaseExpired, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, LEASE, POD
from longboat.kubeapi.leases import GATE
from testbed import api
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.broken import user_config
from tests.engines.kubernetes.controlling import state_of
from tests.engines.kubernetes.run_samples import job, snapshot, workload

pytestmark = pytest.mark.cluster
LONG_S = 120.0


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """With a storage nobody asks simulated nodes for the last lines of their pods."""
    settle(bench)
    return bench


def settle(bench: Bench) -> None:
    chosen = {"kubernetes": {"image": "x", "storage": {"path": "/kept"}}}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps(chosen))
    bench.engine.close()
    bench.engine = bench.open()


def submit(bench: Bench, name: str, **fields: object) -> str:
    return bench.engine.submit(bench.submission("", name=name, gpus=1, **fields)).name


def is_in(client: Client, run: str) -> bool:
    jobs = client.list(JOB, labels=names.selector([(names.RUN, run)])).items
    return bool(jobs) and not any(one["spec"].get("suspend") for one in jobs)


@pytest.fixture
def place(bench: Bench, kwok_nodes: Callable[..., list[str]]) -> Iterator[Callable[[], None]]:
    """A cluster with one GPU for this test, and a pod of somebody else that holds it until this is called."""
    (node,) = kwok_nodes("1:gpus=1,cpu=16,memory=64Gi")
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    client = bench.engine.client
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder"}, "spec": spec})

    def free() -> None:
        client.delete(POD, "holder", grace_s=0)
        api.wait_for("it is gone", lambda: client.find(POD, "holder") is None, LONG_S, every_s=0.1)

    yield free


SERVER = """
import os, sys, time
from longboat.engines.kubernetes.gate import serve
from longboat.engines.kubernetes.reconcile.reconciler import turn
from longboat.kubeapi.client import Client

folder, namespace, run = sys.argv[1:]
real = serve.observe_room

def observe(*given, **more):
    room = real(*given, **more)
    open(os.path.join(folder, "looked"), "w").close()
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.05)
    return room

serve.observe_room = observe
with Client.open(namespace=namespace) as client:
    turn(client, run)
"""


class Server:
    """A process that serves the gate, and waits between its look and its first write until it is told to go on."""

    def __init__(self, bench: Bench, run: str, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        command = [sys.executable, "-c", SERVER, str(folder), bench.namespace, run]
        self.process = subprocess.Popen(command, env={**os.environ, **bench.environment})
        api.wait_for("it has looked", lambda: (folder / "looked").exists(), LONG_S, every_s=0.05)

    def go(self) -> None:
        (self.folder / "go").touch()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def served(bench: Bench, place: Callable[[], None], tmp_path: Path) -> Iterator[Server]:
    """A run `first` that waits, a free place, and a process that has decided to let it in and has not done so."""
    submit(bench, "first")
    place()
    server = Server(bench, "first", tmp_path / "server")
    yield server
    server.end()


def let_in(bench: Bench, run: str) -> None:
    def ask() -> bool:
        bench.engine.status(run)
        return is_in(bench.engine.client, run)

    api.wait_for(f"{run} is let in", ask, LONG_S, every_s=0.2)


def test_a_stopped_process_lets_nobody_in_when_it_wakes_up(bench: Bench, served: Server) -> None:
    client = bench.engine.client
    assert client.get(LEASE, GATE)["spec"]["leaseDurationSeconds"] == gate_lease.TTL_S
    os.kill(served.process.pid, signal.SIGSTOP)
    urgent = submit(bench, "urgent", priority=10)
    let_in(bench, urgent)
    served.go()
    os.kill(served.process.pid, signal.SIGCONT)
    assert served.process.wait(60) == 0, "that is no error: somebody else serves"
    assert is_in(client, urgent) and not is_in(client, "first"), "two would have one place"


def test_one_that_is_killed_is_followed_by_the_next(bench: Bench, served: Server) -> None:
    served.end()
    let_in(bench, "first")


def test_one_that_takes_its_time_is_not_replaced(bench: Bench, served: Server) -> None:
    client = bench.engine.client
    versions: set[str] = set()

    def is_renewed() -> bool:
        bench.engine.status("first")
        versions.add(client.get(LEASE, GATE)["metadata"]["resourceVersion"])
        return len(versions) > 4

    api.wait_for("it was renewed again and again", is_renewed, LONG_S, every_s=0.2)
    assert client.get(LEASE, GATE)["spec"]["leaseTransitions"] == 0 and not is_in(client, "first")
    served.go()
    assert served.process.wait(60) == 0
    assert is_in(client, "first")


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_nothing_is_written_once_somebody_else_has_it(client: Client, proxied: Client, api_proxy: ApiProxy) -> None:
    with hold_gates([proxied]) as gates:
        (gate,) = gates
        gate.client.create(config("before"))
        api_proxy.freeze()

        def take() -> bool:
            with hold_gates([client]) as others:
                return bool(others)

        api.wait_for("another has it", take, LONG_S, every_s=0.2)
        api_proxy.restore()
        with pytest.raises(LeaseExpired):
            gate.client.create(config("after"))
        assert {one["metadata"]["name"] for one in gate.client.list(CONFIG_MAP).items} >= {"before"}, "reading is free"
    assert client.find(CONFIG_MAP, "after") is None


def test_a_write_is_cut_off_with_the_lease(client: Client, proxied: Client, api_proxy: ApiProxy) -> None:
    """One that hangs is not waited for beyond it: what is sent later is sent under another's."""
    left = [2.0]
    bounded = proxied.within(lambda: left[0])
    bounded.create(config("before"))
    api_proxy.freeze()
    threading.Timer(0.5, lambda: left.__setitem__(0, 0.0)).start()
    with pytest.raises((LeaseExpired, Unreachable)):
        bounded.create(config("after"))
    with pytest.raises(LeaseExpired):
        bounded.within(lambda: 100.0).delete(CONFIG_MAP, "before")
    api_proxy.restore()
    assert client.find(CONFIG_MAP, "before") is not None


def test_a_slow_server_has_a_longer_lease(client: Client, proxied: Client, api_proxy: ApiProxy) -> None:
    api_proxy.delay(1.5)
    with hold_gates([proxied]) as (gate,):

        def is_longer() -> bool:
            return int(client.get(LEASE, GATE)["spec"]["leaseDurationSeconds"]) > gate_lease.TTL_S

        api.wait_for("it lasts longer", is_longer, LONG_S, every_s=0.2)
        gate.client.create(config("made"))
    assert client.find(CONFIG_MAP, "made") is not None and client.find(LEASE, GATE) is None


# other namespaces


def together(*benches: Bench) -> GateGroup:
    """Namespaces served by one process."""
    clients = [bench.engine.client for bench in benches]
    group = GateGroup(lambda: clients)
    for client in clients:
        share_gate(client, group)
    return group


@pytest.fixture
def other(cluster: Cluster, cluster_api: api.Api, tmp_path: Path) -> Iterator[Bench]:
    name = f"test-{os.urandom(4).hex()}"
    cluster_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = api.path_of("ServiceAccount", "v1", name, "default")
    api.wait_for("it has its service account", lambda: cluster_api.get(account) is not None, 30.0)
    found = Bench(cluster, name, tmp_path / "other")
    settle(found)
    yield found
    found.close()
    cluster_api.close()
    cluster_api.delete(api.path_of("Namespace", "v1", name=name))


def test_what_was_let_in_elsewhere_and_has_no_pods_yet_is_counted(
    bench: Bench, other: Bench, place: Callable[[], None]
) -> None:
    group = together(bench, other)
    first, third = submit(other, "first"), submit(other, "third")
    # Its pods are not made, as they are not in the first moment, or where a quota is used up.
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    other.engine.client.create(quota)
    place()
    let_in(other, first)
    assert not is_in(other.engine.client, third) and not other.engine.client.list(POD).items
    second = submit(bench, "second")
    found = bench.engine.status(second)
    assert not is_in(bench.engine.client, second), "there is one place"
    assert "held by runs of other namespaces" in found.reason and "first" not in found.reason
    # One turn serves both: the place goes to the next in the order of both, whoever asks.
    other.engine.stop(first, grace_s=0)
    other.engine.stop(third, grace_s=0)
    fourth = submit(bench, "fourth", priority=-1)

    def is_second_in() -> bool:
        turn(bench.engine.client, fourth)
        return is_in(bench.engine.client, second)

    api.wait_for("it is let in", is_second_in, LONG_S, every_s=0.2)
    assert not is_in(bench.engine.client, fourth)
    with group.lock:
        assert ask_gate(bench.engine.client, observe(bench.engine.client, fourth, 0.0), 0.0) is None, "one at a time"


def test_a_controller_of_two_namespaces_has_one_view(bench: Bench, other: Bench, place: Callable[[], None]) -> None:
    first, second = submit(other, "first"), submit(bench, "second")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    other.engine.client.create(quota)
    said: list[str] = []
    with Client.open(environment=bench.environment) as client:
        controller = Controller(client, namespaces=[bench.namespace, other.namespace], say=said.append)
        controller.start()
        try:
            place()
            api.wait_for("the older is let in", lambda: is_in(other.engine.client, first), LONG_S, every_s=0.1)
            words = "held by runs of other namespaces"

            def is_told() -> bool:
                return words in state_of(bench.engine.client, second).gate.reason

            api.wait_for("the other is told why it waits", is_told, LONG_S, every_s=0.2)
            assert not is_in(bench.engine.client, second), said
        finally:
            controller.close()


def test_a_namespace_that_may_not_be_read_or_is_gone_stops_no_other(
    bench: Bench, other: Bench, cluster: Cluster, kubectl: Kubectl, tmp_path: Path, place: Callable[[], None]
) -> None:
    """As when rights of a controller are taken back in one of its namespaces, or the namespace is deleted."""
    good = submit(bench, "good")
    config_ = user_config(cluster, kubectl, bench.namespace, tmp_path, [], "nobody")
    with (
        Client.open(namespace=other.namespace, environment={"KUBECONFIG": str(config_)}) as blind,
        Client.open(namespace="gone", environment=bench.environment) as gone,
    ):
        group = GateGroup(lambda: [blind, bench.engine.client, gone])
        share_gate(bench.engine.client, group)
        place()
        let_in(bench, good)


# records


def damaged(name: str, record: str, state: str = "{}") -> dict[str, Any]:
    labels = {names.MANAGED_BY: "longboat", names.KIND: "run", names.RUN: name}
    return {**config(name), "metadata": {"name": name, "labels": labels}, "data": {"record": record, "state": state}}


def test_records_that_nobody_can_read_stop_nobody(bench: Bench, place: Callable[[], None]) -> None:
    client = bench.engine.client
    good = submit(bench, "good")
    text = client.get(CONFIG_MAP, good)["data"]["record"]
    foreign = {**json.loads(text), "namespace": "kube-system"}
    odd = {**json.loads(text), "name": "odd", "pod": {"spec": 7}, "job": {**json.loads(text)["job"], "roles": []}}
    for body in (
        damaged("empty", ""),
        damaged("garbage", "{"),
        damaged("newer", json.dumps({"version": 99, "job": "a new form"})),
        damaged("state", text.replace(f'"{good}"', '"state"'), state='{"phase": "levitating"}'),
        damaged("renamed", text),
        damaged("foreign", json.dumps(foreign)),
        damaged("odd", json.dumps(odd)),
    ):
        client.create(body)
    place()
    let_in(bench, good)


def test_who_waits_hears_of_ends_and_keeps_nothing_of_what_has_ended(client: Client) -> None:
    """However many runs have ended in the namespace, a process that waits at the gate holds none of their pods."""
    container = {"name": "main", "image": "x"}
    for name in ("over", "alive"):
        meta = {"name": name, "labels": {names.MANAGED_BY: "longboat"}}
        spec = {"containers": [container], "nodeSelector": {"no": "node"}}
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def end(name: str) -> None:
        client.patch(POD, name, {"status": {"phase": "Succeeded"}}, subresource="status")

    end("over")
    waiting = snapshot(job_=job(), workloads=(workload(is_suspended=True),))
    waiting = msgspec.structs.replace(waiting, record=msgspec.structs.replace(waiting.record, gated_by="longboat"))
    with Reconciler(client, "train") as driver:
        driver._watch_other_runs(waiting)
        assert driver._gate is not None
        driver._gate.sync(LONG_S)
        (kept,) = driver._gate.items.values()
        assert set(msgspec.to_builtins(kept)) == {"metadata"}, "and of others only that they are there"
        driver._wake.clear()
        end("alive")
        assert driver._wake.wait(LONG_S), "its place may be free now"
        assert not driver._gate.items
