"""Faults of components: each is felt, and over when it is taken back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import __main__, api, binaries, cleanup, faults, namespaces, node, processes, profiles
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.fixtures import Kubectl
from testbed.registry import Registry, write_new_image
from testbed.up import up
from tests.testbed.test_node import pod

WRITE = """
import errno
try:
    with open("/disk/file", "wb") as file:
        while True:
            file.write(b"x" * 4096); file.flush()
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def config_map(name: str) -> api.Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def in_namespace(namespace: str, item: api.Object) -> api.Object:
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


def test_names_of_components() -> None:
    assert faults.proper_name("kube-apiserver") == faults.proper_name("apiserver") == "apiserver"
    assert faults.proper_name("kubelet") == "node-0-kubelet"
    assert faults.proper_name("node-1-kube-proxy") == "node-1-kube-proxy"
    assert faults.is_component("etcd") and faults.is_component("node-1-containerd")
    assert not faults.is_component("node-0-holder")


def test_a_small_disk_is_never_outside_of_the_node() -> None:
    cluster = Cluster("one", "0a1b2c3d", Path("/x"), ("pods",), range=70)
    for path, size in (("/tmp/x", "1m"), ("/var/../etc", "1m"), ("var/x", "1m"), ("/var/x", "1m,uid=0")):
        with pytest.raises(TestbedError, match="small disk"), faults.small_disk(cluster, path, size):
            pass


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd", "kwok"])
def test_a_component_is_restarted_and_ready_again(
    cluster: Cluster, cluster_api: api.Api, namespace: str, name: str
) -> None:
    before = faults.component(cluster, name)
    assert __main__.main(["fault", "restart", name, "--name", cluster.name]) == 0
    after = faults.component(cluster, name)
    assert after.pid != before.pid and not processes.is_alive(before) and processes.is_alive(after)
    cluster_api.close()
    cluster_api.create(in_namespace(namespace, config_map("after")))
    assert cluster_api.get(api.path_of("ConfigMap", "v1", namespace, "after"))
    running = processes.recorded(cluster.processes)
    assert processes.ended(running.values()) == [], "the others survive it"


@pytest.mark.cluster
def test_pods_are_bound_after_every_component_was_killed(
    cluster: Cluster, kubectl: Kubectl, kwok_nodes: object
) -> None:
    assert callable(kwok_nodes)
    kwok_nodes("1:cpu")
    for name in ("scheduler", "controller-manager", "apiserver", "etcd"):
        faults.kill(cluster, name)
    with pytest.raises(TestbedError, match="does not run"):
        faults.pause(cluster, "etcd")
    for name in ("etcd", "apiserver", "controller-manager", "scheduler"):
        faults.start(cluster, name)
    with pytest.raises(TestbedError, match="runs already"):
        faults.start(cluster, "etcd")
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    kubectl("create", "-f", "-", text=pod("after", "sleep", "1"))
    kubectl("wait", "--for=condition=ready", "pod/after", "--timeout=60s")


@pytest.mark.cluster
def test_a_paused_api_answers_nobody_until_it_goes_on(cluster: Cluster, namespace: str) -> None:
    impatient, patient = api.Api(cluster, timeout_s=1.0), api.Api(cluster)
    faults.pause(cluster, "kube-apiserver")
    try:
        with pytest.raises(TestbedError, match="does not answer"):
            impatient.create(in_namespace(namespace, config_map("lost")))
    finally:
        faults.resume(cluster, "kube-apiserver")
    api.wait_for("the API is ready", patient.is_ready, 30.0)
    patient.close()


@pytest.mark.cluster
def test_a_slow_etcd_still_works(cluster: Cluster, cluster_api: api.Api, namespace: str) -> None:
    state = Path("/proc", str(faults.component(cluster, "etcd").pid), "stat")

    def is_stopped() -> bool:
        return state.read_text().rpartition(")")[2].split()[0] == "T"

    with faults.slowed(cluster, "etcd", 0.8):
        api.wait_for("etcd is stopped for a moment", is_stopped, 10.0, every_s=0.01)
        for number in range(5):
            cluster_api.create(in_namespace(namespace, config_map(f"slow-{number}")))
    assert not is_stopped()
    assert len(cluster_api.items(api.path_of("ConfigMap", "v1", namespace))) >= 5


@pytest.mark.cluster
def test_an_unknown_component_is_refused_by_name(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["fault", "kill", "kubelet", "--name", cluster.name]) == 1
    told = capsys.readouterr().err
    assert "'kubelet'" in told and "apiserver, controller-manager, etcd, kwok, scheduler" in told


@pytest.mark.pods
def test_a_full_disk(cluster: Cluster, kubectl: Kubectl, namespace: str) -> None:
    with faults.small_disk(cluster, f"/var/lib/{namespace}", "256k") as path:
        mounted = {
            "volumes": [{"name": "disk", "hostPath": {"path": path}}],
            "containers": [
                {
                    "name": "main",
                    "image": "longboat.test/python:latest",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", WRITE],
                    "volumeMounts": [{"name": "disk", "mountPath": "/disk"}],
                }
            ],
        }
        kubectl("create", "-f", "-", text=pod("writer", **mounted))
        kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/writer", "--timeout=60s")
        assert kubectl("logs", "writer") == "ENOSPC\n"
    assert not Path(f"/var/lib/{namespace}").exists(), "the machine's own folder is another one"


@pytest.mark.cluster
@pytest.mark.usefixtures("needs_cluster")
def test_a_cluster_goes_in_whatever_state(state: Path) -> None:
    before = cleanup.inventory()
    cluster = up("one", profiles.combine([]))
    faults.pause(cluster, "kube-apiserver")
    faults.kill(cluster, "etcd")
    assert up("one", profiles.combine([])).id != cluster.id, "what is broken is made anew"
    faults.pause(cluster := up("one", profiles.combine([])), "etcd")
    assert cleanup.down("one") and not cleanup.down("one")
    assert cleanup.left_behind(before, cleanup.inventory(), cluster) == []
    assert not state.exists()


@pytest.fixture
def own_cluster(state: Path) -> Iterator[Cluster]:
    """For faults that tests beside this one would feel."""
    yield up("one", profiles.combine(["pods"]))
    cleanup.down("one")


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.usefixtures("needs_pods")
def test_a_cable_is_cut_bad_or_narrow_only_for_a_while(own_cluster: Cluster) -> None:
    holder = faults.real_holder_of(own_cluster, 0)
    place = (own_cluster.address, own_cluster.ports["apiserver"])
    for broken in (faults.cut_off(own_cluster, 0), faults.lossy(own_cluster, 0, percent=100)):
        with broken:
            assert not faults.accepts(place)
        assert faults.accepts(place)
    with faults.delayed(own_cluster, 0):
        assert "tbf" in namespaces.run(holder, ["tc", "qdisc", "show", "dev", "eth0"])
        with contextlib.closing(api.Api(own_cluster)) as with_api:
            assert with_api.is_ready()
    assert "tbf" not in namespaces.run(holder, ["tc", "qdisc", "show", "dev", "eth0"])
    assert "testbed_" not in namespaces.run(holder, ["nft", "list", "tables"])


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.usefixtures("needs_pods")
def test_parts_of_a_node_fail_one_after_the_other(own_cluster: Cluster, tmp_path: Path) -> None:
    kubectl = Kubectl(own_cluster, "default")
    with_api = api.Api(own_cluster)
    kubectl("create", "-f", "-", text=pod("stays", "sleep", "600"))
    kubectl("wait", "--for=condition=ready", "pod/stays", "--timeout=60s")
    started = kubectl("get", "pod", "stays", "-o", "jsonpath={.status.containerStatuses[0].state.running.startedAt}")
    faults.restart(own_cluster, "containerd")
    faults.kill(own_cluster, "kubelet")
    api.wait_for("the loss is noticed", lambda: not node.is_ready(with_api, "node-0"), 90.0)
    with_api.close()
    faults.start(own_cluster, "kubelet")
    api.wait_for("the node is back", lambda: node.is_ready(with_api, "node-0"), 60.0)
    kubectl("wait", "--for=condition=ready", "pod/stays", "--timeout=60s")
    path = "jsonpath={.status.containerStatuses[0].state.running.startedAt}"
    assert kubectl("get", "pod", "stays", "-o", path) == started, "its container never stopped"
    with_api.close()
    pull_onto_a_full_disk(own_cluster, kubectl, tmp_path)


def pull_onto_a_full_disk(cluster: Cluster, kubectl: Kubectl, folder: Path) -> None:
    registry = Registry(cluster)
    try:
        program = binaries.find(("tools",))["pause"]
        image = registry.add("big", write_new_image(folder / "big.tar", program, os.urandom(1 << 20)))
        container = {"name": "main", "image": image}
        with faults.small_image_disk(cluster, "64k"):
            kubectl("create", "-f", "-", text=pod("big", containers=[container]))
            events = lambda: kubectl("get", "events", "--field-selector=involvedObject.name=big")  # noqa: E731
            api.wait_for("the reason is told", lambda: "no space left on device" in events(), 60.0)
        kubectl("wait", "--for=condition=ready", "pod/big", "--timeout=90s")
    finally:
        registry.close()
