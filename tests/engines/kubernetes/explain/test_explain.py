"""Post-mortems of runs that really broke, and of pods that the cluster really took away."""

from __future__ import annotations

import http.server
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from longboat.core.runs import Explanation, LogQuery
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.explain.containers import StartTrouble
from longboat.engines.kubernetes.explain.explain import RunInspector, pod_names
from longboat.engines.kubernetes.explain.pending import event_time, troubles
from longboat.engines.kubernetes.explain.pod_failures import pod_failures
from longboat.engines.kubernetes.observe.observe import observe
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from longboat.specs.read import read_job
from testbed import binaries
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.registry import Registry, write_new_image
from tests.engines.kubernetes.broken import IMAGE, apply, indexed_job, opened, pod, see, until, user_config

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
HOARD = """
import time
hoard = bytearray(300 << 20)
for i in range(0, len(hoard), 4096): hoard[i] = 1
time.sleep(60)
"""


class Runs:
    """Runs in a namespace of the test's own."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "LONGBOAT_HOME": str(folder / "home")}
        self.engine = KubernetesEngine(namespace=namespace, environment=self.environment)
        self.client = self.engine.client
        self.folder = folder / "code"
        self.folder.mkdir()

    def submit(self, code: str, **fields: object) -> str:
        (self.folder / "train.py").write_text(code)
        wanted = {"name": "run", "run": ["python3", "train.py"], "image": IMAGE, "grace": "1s", **fields}
        given = {name: value for name, value in wanted.items() if value is not None}
        loaded = read_job([], fields=given, environment=self.environment, cwd=self.folder)
        submission = Submission(job=loaded.job, base=loaded.base, environment=self.environment)
        return self.engine.submit(submission).name

    def explained(self, code: str, **fields: object) -> Explanation:
        """Why it failed, once it has."""
        run = self.submit(code, **fields)
        assert self.engine.wait(run, timeout_s=120).phase == "failed"
        return self.engine.explain(run)

    def until_up(self, run: str) -> None:
        query = LogQuery()
        until(f"{run} is up", lambda: any(line.data == b"up\n" for line in self.engine.logs(run, query)))

    def until_told(self, run: str, *words: str) -> Explanation:
        """The explanation of a waiting run, once it has these words."""

        def told() -> Explanation | None:
            found = self.engine.explain(run)
            text = "\n".join((found.headline, *found.facts))
            return found if all(word in text for word in words) else None

        return until(f"{run} says {words}", told)


@pytest.fixture
def runs(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(cluster.kubeconfig, namespace, tmp_path)
    try:
        yield made
    finally:
        for status in made.engine.list():
            made.engine.delete(status.name, purge=True)
        made.engine.close()


@pytest.mark.pods
class TestRuns:
    """Whole runs, through the engine."""

    def test_out_of_memory(self, runs: Runs) -> None:
        why = runs.explained(HOARD, memory="100Mi")
        assert why.cause == "oom" and "limit is 100Mi" in why.headline
        (fact,) = [fact for fact in why.facts if "OOMKilled" in fact and "memory limit" in fact]
        assert "its memory limit is 100Mi" in fact and "/dev/shm counts in it (up to 50Mi)" in fact
        assert "rank 0 used" in fact

    def test_no_python_in_the_image(self, runs: Runs) -> None:
        why = runs.explained("pass", image="longboat.test/pause:latest")
        assert why.cause == "image" and "no python3" in why.headline
        assert any("Python 3.8" in step for step in why.next_steps)

    def test_an_image_that_is_not_there(self, runs: Runs, registry: Registry) -> None:
        image = f"{registry.host}/no-such-image:latest"
        why = runs.explained("pass", image=image)
        assert why.cause == "image" and image in why.headline
        assert "the registry has no image of this name and tag" in why.headline

    def test_an_eviction(self, runs: Runs) -> None:
        run = runs.submit(SLEEP)
        runs.until_up(run)
        (body,) = runs.client.list(kinds.POD, labels=f"longboat.dev/run={run}").items
        runs.client.delete(kinds.PDB, run)  # it keeps the run from being drained, which is tested elsewhere
        evict(runs.client, body["metadata"]["name"])
        assert runs.engine.wait(run, timeout_s=60).cause == "preemption"
        why = runs.engine.explain(run)
        assert any("worker-0: evicted through the API" in fact for fact in why.facts)
        assert any("retries" in step for step in why.next_steps)

    def test_setup_shows_its_last_lines(self, runs: Runs) -> None:
        why = runs.explained("pass", setup="echo no such package: quux; exit 3")
        assert why.cause == "setup" and "no such package: quux" in why.lines

    def test_nodes_that_cannot_find_each_other(
        self, runs: Runs, kubectl: Kubectl, registry: Registry, tmp_path: Path
    ) -> None:
        """One is still pulling its image; what would keep it away afterwards is told at once.

        The wall is one against egress: ingress from its own pods is what the policy of the run itself lets in.
        """
        spec = {"podSelector": {}, "policyTypes": ["Egress"]}
        body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "walls"}}
        apply(kubectl, {**body, "spec": spec})
        program = binaries.find(("tools",))["pause"]
        image = registry.add("slow", write_new_image(tmp_path / "slow.tar", program, os.urandom(1 << 16)))
        registry.hang("blobs")
        roles = {"chief": {"run": ["python3", "train.py"]}, "late": {"run": ["python3", "train.py"], "image": image}}
        run = runs.submit(SLEEP, run=None, roles=roles)
        kubectl("delete", "service", f"{run}-a0")
        why = runs.until_told(run, "chief-0 wait for late-0", "has been pulling image")
        assert any("NetworkPolicy walls" in fact and "egress to the other pods" in fact for fact in why.facts)
        assert any(f"Service {run}-a0 is gone" in fact for fact in why.facts)
        registry.restore()

    def test_a_quota_that_others_use_up(self, runs: Runs, kubectl: Kubectl) -> None:
        kubectl("create", "quota", "two", "--hard=pods=1")
        apply(kubectl, pod("other", ["python3", "-c", "import time; time.sleep(600)"]))
        until("the quota counts the pod", lambda: '"pods": "1"' in used(kubectl))
        run = runs.submit(SLEEP)
        why = runs.until_told(run, "quota two does not allow it")
        assert why.phase in ("pending", "starting")
        kubectl("delete", "pod", "other", "--now")

    def test_who_holds_the_cpus(self, runs: Runs) -> None:
        """The gate names the run; every node says why not."""
        first = runs.submit(SLEEP, name="holder", cpus=1.2)
        runs.until_up(first)
        second = runs.submit(SLEEP, name="waiter", cpus=1.2)
        why = runs.until_told(second, "node node-0: not enough cpu", "1.2 wanted")
        assert "holder" in why.headline


@pytest.mark.pods
def test_a_user_with_just_the_role_that_we_print(
    cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    """It is enough for a whole life of a run; what may not be read is left out of the explanation."""
    rules = role_for(PERMISSIONS, namespace=namespace)["rules"]
    assert isinstance(rules, list)
    runs = Runs(user_config(cluster, kubectl, namespace, tmp_path, rules), namespace, tmp_path)
    why = runs.explained("raise ValueError('bad batch')")
    assert "ValueError: bad batch" in why.headline and "ValueError: bad batch" in why.lines[-1]
    runs.engine.delete("run", purge=True)
    assert list(runs.engine.list()) == []
    runs.engine.close()


def used(kubectl: Kubectl) -> str:
    return json.dumps(json.loads(kubectl("get", "quota", "two", "-o", "json"))["status"].get("used"))


def evict(client: Client, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": client.namespace}}
    client.request("POST", client.path(kinds.POD, None, name, "eviction"), body=body, may_repeat=True)


def fates_of(client: Client, run: str, **more: Any) -> list[StartTrouble]:
    pods = client.list(kinds.POD, labels=f"longboat.dev/run={run}").items
    events = sorted(client.list(kinds.EVENT).items, key=event_time)
    nodes = {str(one["metadata"]["name"]): one for one in client.list(kinds.NODE).items}
    return pod_failures(pods, events, nodes=nodes, **more)


@pytest.mark.cluster
class TestTakenAway:
    """Pods on simulated nodes, taken away by the real scheduler and the real node controller."""

    def test_preemption_names_the_preemptor(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        (node,) = kwok_nodes("1:t4x4")
        kubectl("create", "priorityclass", namespace, "--value=1000")
        try:
            gpus = {"limits": {"nvidia.com/gpu": "4"}}
            victim = indexed_job("victim", resources=gpus)
            # Kept until the test has looked, as the record of a run keeps them.
            victim["spec"]["template"]["metadata"]["finalizers"] = ["longboat.test/kept"]
            apply(kubectl, victim)
            with opened(cluster, namespace) as client:
                until("the victim runs", lambda: phase_of(client, "victim") == "Running")
                apply(kubectl, pod("urgent", resources=gpus, priorityClassName=namespace))

                def told() -> StartTrouble | None:
                    found = fates_of(client, "victim", owners=pod_names(client))
                    # The scheduler's event names the preemptor; it comes a moment after the pod is marked.
                    return next((one for one in found if "preempted by pod " in one.what), None)

                found = until("the victim is preempted", told)
                assert found.what == f"worker-0: preempted by pod {namespace}/urgent of higher priority on node {node}"
                assert found.cause == "preemption"
                release(client, "victim")
        finally:
            kubectl("delete", "priorityclass", namespace)

    @pytest.mark.soak
    def test_a_node_that_falls_silent(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        """The node controller gives it most of a minute."""
        (node,) = kwok_nodes("1:cpu", lost_after="1s")
        apply(kubectl, pod("on-it", nodeName=node))
        with opened(cluster, namespace) as client:

            def told() -> StartTrouble | None:
                return next((one for one in fates_of(client, "on-it") if "is not ready" in one.what), None)

            found = until("the node is not ready", told, within_s=300.0)
        assert found.what.startswith(f"worker-0: node {node} is not ready") and found.cause == "lost"

    def test_a_node_that_is_gone(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        (node,) = kwok_nodes("1:cpu")
        apply(kubectl, pod("on-it", nodeName=node))
        with opened(cluster, namespace) as client:
            until("the pod runs", lambda: phase_of(client, "on-it") == "Running")
            kubectl("delete", "node", node)
            (told,) = fates_of(client, "on-it")
        assert told.what == f"worker-0: node {node} is gone" and told.cause == "lost"

    def test_pressure(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        """A kubelet's own words, on a pod whose status it would have written."""
        (node,) = kwok_nodes("1:cpu")
        apply(kubectl, pod("on-it", nodeName=node))
        message = (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
            "Container main was using 2Gi, request is 1Gi, has larger consumption of memory. "
        )
        with opened(cluster, namespace) as client:
            until("the pod runs", lambda: phase_of(client, "on-it") == "Running")
            status = {"status": {"phase": "Failed", "reason": "Evicted", "message": message}}
            kubectl("patch", "pod", "on-it", "--subresource=status", "-p", json.dumps(status))
            (told,) = fates_of(client, "on-it")
        assert told.what == (
            f"worker-0: evicted from node {node}: the node was short of memory; it was using 2Gi, and had asked for 1Gi"
        )
        assert "`memory`" in (told.hint or "")


def phase_of(client: Client, run: str) -> str:
    pods = client.list(kinds.POD, labels=f"longboat.dev/run={run}").items
    return str(pods[0]["status"].get("phase")) if pods else ""


def release(client: Client, run: str) -> None:
    for body in client.list(kinds.POD, labels=f"longboat.dev/run={run}").items:
        client.patch(kinds.POD, body["metadata"]["name"], {"metadata": {"finalizers": None}})


@pytest.mark.cluster
def test_a_cluster_without_dns(runs: Runs, kwok_nodes: Callable[..., list[str]]) -> None:
    kwok_nodes("1:cpu")
    run = runs.submit(SLEEP, nodes=2)
    with ThreadPoolExecutor(4) as pool:
        look = RunInspector(runs.client, observe(runs.client, run, time.time()), pool)
        pods = until("its pods are there", look.pods)
        assert any("DNS (service kube-dns in kube-system) has no ready pod" in one.what for one in look.network(pods))


class Denying(http.server.BaseHTTPRequestHandler):
    """An admission webhook that lets nothing in."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"message": "pods must name a cost centre", "code": 403}
        answer = {"uid": asked["request"]["uid"], "allowed": False, "status": status}
        body = json.dumps({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def denying_webhook(cluster: Cluster) -> Iterator[str]:
    """Its address. It shows the API server's own certificate, which holds for this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Denying)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(cluster.pki / "apiserver.crt"), str(cluster.pki / "apiserver.key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.cluster
def test_a_webhook_refuses(cluster: Cluster, namespace: str, kubectl: Kubectl, denying_webhook: str) -> None:
    import base64

    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    bundle = base64.b64encode((cluster.pki / "ca.crt").read_bytes()).decode()
    hook = {
        "name": "costs.example.org",
        "clientConfig": {"url": denying_webhook, "caBundle": bundle},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": namespace}}
    apply(kubectl, {**body, "webhooks": [hook]})
    try:
        with opened(cluster, namespace) as client:
            numbers = iter(range(1000))

            def told() -> StartTrouble | None:
                # The webhook holds some moments after it was made: pods of earlier Jobs may slip through.
                run = f"costly-{next(numbers)}"
                apply(kubectl, indexed_job(run))
                until(f"{run} has pods or says why not", lambda: troubles(see(client, run)) or see(client, run).pods)
                found = troubles(see(client, run))
                return next((one for one in found if "webhook" in one.what), None)

            refused = until("the webhook refuses", told)
        assert refused.what == "admission webhook costs.example.org refuses it: pods must name a cost centre"
        assert refused.is_final
    finally:
        kubectl("delete", kind.lower(), namespace)
