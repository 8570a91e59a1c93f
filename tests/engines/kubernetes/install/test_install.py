"""The controller in a cluster, under the rights it was given: it serves, says nothing of being forbidden, and goes."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.engines.kubernetes.install.autoscaler_manifests import AUTOSCALER
from longboat.engines.kubernetes.install.controller_manifests import HOME
from longboat.engines.kubernetes.install.install import absence, find_controller, without_controller
from longboat.engines.kubernetes.record_store import STOP, stop_text
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, NODE, POD
from longboat.kubeapi.leases import CONTROLLER
from testbed import api, binaries, clusters, fixtures, images, namespaces, node, profiles, stages
from testbed.clusters import Cluster
from testbed.errors import Missing
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import IMAGE, Bench
from tests.engines.kubernetes.controlling import wait_for_end, wait_for_word

pytestmark = [pytest.mark.pods, pytest.mark.soak, pytest.mark.xdist_group("installation")]

FLAKY = 'import os, sys; sys.exit(0 if os.environ["LONGBOAT_ATTEMPT"] == "1" else 5)'
GRACEFUL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(21))
print("ready", flush=True)
time.sleep(600)
"""
POOL = "longboat.dev/pool"
ACCOUNT = f"system:serviceaccount:{HOME}:{CONTROLLER}"


@functools.cache
def load_image(cluster_name: str, image: str = "longboat") -> None:
    """Once for each test process: an import takes as long the second time."""
    holder = namespaces.holder_of(clusters.get(cluster_name), node.name_of(0))
    assert holder is not None
    try:
        images.load([image], binaries.find(("tools", "containerd")), holder, node.SOCKET)
    except Missing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A controller serves every namespace of its cluster: tests that are not about it must not share one with it."""
    profile = profiles.with_empty_fleet(profiles.combine(["pods"]))
    with fixtures.own_cluster("test-install", profile, "pods") as made:
        yield made


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    return own_cluster


@pytest.fixture
def bench(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    load_image(cluster.name)
    made = Bench(cluster, namespace, tmp_path)
    yield made
    longboat(made, "install", "--remove")
    made.close()


def longboat(bench: Bench, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "longboat", *words]
    environment = {**os.environ, **bench.environment, "NO_COLOR": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=bench.root)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def inventory(cluster_api: api.Api) -> set[str]:
    """Every object of every type that is not of somebody's test or a diary."""
    found = set()
    versions = ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups(cluster_api))]
    for version in versions:
        for resource in cluster_api.call("GET", version)["resources"]:
            if "list" in resource["verbs"] and "/" not in resource["name"] and resource["kind"] != "Event":
                for item in cluster_api.items(f"{version}/{resource['name']}"):
                    meta = item["metadata"]
                    found.add(f"{resource['kind']} {meta.get('namespace', '')}/{meta['name']}")
    return {one for one in found if "test-" not in one}


def groups(cluster_api: api.Api) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = cluster_api.call("GET", "/apis")["groups"]
    return found


def full_set(bench: Bench, client: Client) -> None:
    """What turns can be about: the gate, a claim, a retry, a stop with its grace, an image that is not there."""
    engine = bench.engine
    retries = {"count": 1, "backoff": "0s"}
    flaky = engine.submit(bench.submission(FLAKY, name="flaky", nodes=2, cpus=0.05, retries=retries)).name
    stopped = engine.submit(bench.submission(GRACEFUL, name="stopped")).name
    lacking = engine.submit(bench.submission("", name="lacking", image="longboat.test/nothing:1")).name
    wait_for_word(client, stopped, "ready")
    client.patch(CONFIG_MAP, stopped, {"metadata": {"annotations": {STOP: stop_text(1.0, 30.0)}}})
    ended = wait_for_end(client, stopped)
    assert (ended.phase, ended.exit_code) == ("stopped", 21), ended.reason
    ended = wait_for_end(client, flaky)
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
    client.patch(CONFIG_MAP, lacking, {"metadata": {"annotations": {STOP: stop_text(1.0, 0.0)}}})
    assert wait_for_end(client, lacking).phase == "stopped"


def is_installed(client: Client, namespace: str) -> bool:
    return absence(find_controller(client), namespace) is None


def test_installed_it_serves_and_removed_it_leaves_nothing(
    bench: Bench, cluster_api: api.Api, kubectl: Kubectl
) -> None:
    client = bench.engine.client
    before = inventory(cluster_api)
    assert is_installed(client, bench.namespace) is False
    done = longboat(bench, "install", "--image", images.reference("longboat"), "--all-namespaces")
    assert "Deployment longboat-system/longboat-controller" in done.stdout.splitlines()
    assert "for all namespaces" in done.stderr
    assert is_installed(client, bench.namespace) is True
    (pod,) = client.list(POD, namespace=HOME).items
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    full_set(bench, client)
    log = kubectl("-n", HOME, "logs", f"deploy/{CONTROLLER}")
    assert re.fullmatch(r"longboat: longboat-controller-\S+ leads\n", log), log
    assert_modest(kubectl)
    told = longboat(bench, "install", "--image", "x", code=205).stderr
    assert "serves all namespaces is installed already" in told and "--all-namespaces keeps that" in told
    assert "no namespace nowhere" in longboat(bench, "install", "--image", "x", "--only", "nowhere", code=205).stderr
    longboat(bench, "install", "--image", images.reference("longboat"), "--all-namespaces")
    for run in bench.engine.list():
        bench.engine.delete(run.name)
    removed = longboat(bench, "install", "--remove").stdout
    assert "ClusterRole longboat-controller" in removed
    api.wait_for("nothing is left", lambda: inventory(cluster_api) <= before, 60.0)
    assert longboat(bench, "install", "--remove").stdout == ""


def assert_modest(kubectl: Kubectl) -> None:
    allowed = kubectl("auth", "can-i", "--list", f"--as={ACCOUNT}", "-n", "kube-system")
    assert "*" not in re.sub(r"(?m)^\s+\[/.*$|^\s+\[\S*\*?\]\s+\[\]\s+\[get\]$", "", allowed), allowed
    for words in (
        ("list", "secrets"),
        ("delete", "secrets"),
        ("create", "pods"),
        ("update", "leases"),
        ("delete", "configmaps"),
        ("create", "clusterroles"),
        ("get", "nodes", "--subresource=proxy"),
    ):
        command = kubectl.command("auth", "can-i", *words, f"--as={ACCOUNT}", "-n", "kube-system")
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        assert answer == "no", words


def test_for_one_namespace_it_serves_that_alone(bench: Bench, kubectl: Kubectl, cluster: Cluster) -> None:
    client = bench.engine.client
    longboat(bench, "install", "--image", images.reference("longboat"), "--only", bench.namespace)
    assert is_installed(client, bench.namespace) is True
    assert is_installed(client, "default") is False
    full_set(bench, client)
    log = kubectl("-n", HOME, "logs", f"deploy/{CONTROLLER}")
    assert re.fullmatch(rf"longboat: \S+ leads, in namespace {bench.namespace}\n", log), log
    assert may(kubectl, "default") == "no" and may(kubectl, bench.namespace) == "yes"
    longboat(bench, "install", "--image", images.reference("longboat"), "--only", f"default,{bench.namespace}")
    assert may(kubectl, "default") == may(kubectl, bench.namespace) == "yes" and is_installed(client, "default") is True
    longboat(bench, "install", "--image", images.reference("longboat"), "--only", "default")
    assert (may(kubectl, "default"), may(kubectl, bench.namespace)) == ("yes", "no"), "rights are withdrawn"
    assert is_installed(client, bench.namespace) is False
    longboat(bench, "install", "--remove")
    assert kubectl("get", "role,rolebinding", "-o", "name") == "" and may(kubectl, "default") == "no"


def may(kubectl: Kubectl, namespace: str) -> str:
    """Whether the controller may read Secrets there."""
    command = kubectl.command("auth", "can-i", "get", "secrets", f"--as={ACCOUNT}", "-n", namespace)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def test_who_leaves_a_run_alone_is_told_where_nobody_looks_after_it(bench: Bench, kubectl: Kubectl) -> None:
    (bench.root / "train.py").write_text("print(1)")
    words = ("run", "-d", "--namespace", bench.namespace, "-n", "left", "--cpus", "0.05", "--retries", "1")
    done = longboat(bench, *words, "train.py")
    assert done.stdout == "left\n"
    assert "nobody restarts left after a failure while no command looks at it" in done.stderr
    assert f"longboat wait left --namespace {bench.namespace}" in done.stderr
    quiet = longboat(bench, *words, "-q", "train.py")
    assert quiet.stderr == ""
    assert "nobody" not in longboat(bench, "run", "-d", "--namespace", bench.namespace, "train.py").stderr
    longboat(bench, "install", "--image", images.reference("longboat"), "--only", bench.namespace)
    assert "nobody" not in longboat(bench, *words, "train.py").stderr
    assert without_controller(bench.engine.client, "left") is None


def test_anybody_may_see_whether_there_is_a_controller(bench: Bench, kubectl: Kubectl) -> None:
    longboat(bench, "install", "--image", images.reference("longboat"))
    who = ("--as=somebody", "--as-group=system:authenticated")
    assert json.loads(kubectl("get", "-n", HOME, "deployment", CONTROLLER, "-o", "json", *who))["spec"]["replicas"] == 1
    command = kubectl.command("get", "-n", HOME, "pods", *who)
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_an_image_that_does_not_start_is_told_of(bench: Bench) -> None:
    done = longboat(bench, "install", "--image", IMAGE, "--timeout", "5s", code=205)
    assert "the controller is not ready after 5 s" in done.stderr and "longboat" in done.stderr
    assert is_installed(bench.engine.client, bench.namespace) is False


POOLS = """
pools:
- {name: small, max: 3, boot: 20s, machine: {cpus: 8, memory: 32Gi, gpus: 8}}
settings: {idle: 0s}
"""
SCALER = f"system:serviceaccount:{HOME}:{AUTOSCALER}"


def test_the_autoscaler_is_installed_beside_it_works_and_goes(
    bench: Bench, cluster_api: api.Api, kubectl: Kubectl
) -> None:
    client, pools = bench.engine.client, bench.root / "pools.yaml"
    before = inventory(cluster_api)
    pools.write_text(POOLS.replace("max: 3", "max: many"))
    words = ("install", "--image", images.reference("longboat"), "--autoscaler", str(pools))
    assert "pools.yaml:3:22: pools.0.max" in longboat(bench, *words, code=201).stderr
    assert inventory(cluster_api) <= before, "a file with mistakes installs nothing"
    pools.write_text(POOLS)
    shown = json.loads(longboat(bench, *words, "--dry-run", "-o", "json").stdout)["items"]
    done = longboat(bench, *words)
    assert len(done.stdout.splitlines()) == len(shown) and f"Deployment {HOME}/{AUTOSCALER}" in done.stdout
    kubectl("create", "-f", "-", text=json.dumps(gpu_job(bench.namespace)))
    kubectl("wait", "--for=condition=complete", "job/train", "--timeout=90s")
    api.wait_for("the machine is gone", lambda: not kubectl("get", "nodes", "-l", POOL, "-o", "name"), 60.0)
    status = json.loads(longboat(bench, "autoscaler", "status", "-o", "json").stdout)
    assert status["leader"].startswith(AUTOSCALER) and status["pools"][0]["note"]["pool"] == "small"
    log = kubectl("-n", HOME, "logs", f"deploy/{AUTOSCALER}")
    assert "kind=grow pool=small count=1" in log
    assert "forbidden" not in log and "cannot" not in log, log
    assert_scaler_is_modest(kubectl)
    pools.write_text(POOLS.replace("max: 3", "max: 4"))
    longboat(bench, *words)
    api.wait_for("it has read the new file", lambda: reported_max(bench) == 4, 60.0)
    kubectl("apply", "-f", "-", text=json.dumps(cordoned_node()))
    removed = longboat(bench, "install", "--remove").stdout
    assert f"ClusterRole {AUTOSCALER}" in removed and "ClusterRole longboat-controller" in removed
    node = client.get(NODE, "left-behind")
    assert not node["spec"].get("unschedulable"), "nobody would go on with it"
    kubectl("delete", "node", "left-behind")
    kubectl("delete", "job", "train")
    api.wait_for("nothing is left", lambda: inventory(cluster_api) <= before, 60.0)


def gpu_job(namespace: str) -> dict[str, object]:
    """One pod of 8 GPUs, which the simulated node ends after a second."""
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"restartPolicy": "Never", "nodeSelector": {POOL: "small"}, "containers": [container]}
    template = {"metadata": {"annotations": {stages.PREFIX + "run-for": "1s"}}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"template": template},
    }


def cordoned_node() -> dict[str, object]:
    """As the autoscaler leaves one that it is about to remove; of a pool that it does not know."""
    marks = {"longboat.dev/cordoned-at": "2026-11-15T12:00:00Z", "kwok.x-k8s.io/node": "fake"}
    meta = {"name": "left-behind", "annotations": marks, "labels": {"type": "kwok"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"unschedulable": True}}


def reported_max(bench: Bench) -> int:
    shown = json.loads(longboat(bench, "autoscaler", "status", "-o", "json").stdout)
    return int(shown["pools"][0]["max"])


def assert_scaler_is_modest(kubectl: Kubectl) -> None:
    for words in (
        ("get", "secrets"),
        ("create", "pods"),
        ("delete", "pods"),
        ("update", "configmaps"),
        ("update", "leases"),
        ("create", "clusterroles"),
        ("get", "nodes", "--subresource=proxy"),
        ("patch", "jobs"),
    ):
        command = kubectl.command("auth", "can-i", *words, f"--as={SCALER}", "-n", "kube-system")
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        assert answer == "no", words
