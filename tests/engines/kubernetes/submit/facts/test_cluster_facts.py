"""What a cluster serves, has and allows, seen on a real API server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longboat.core.jobs import Gpus
from longboat.engines.kubernetes.records import Storage
from longboat.engines.kubernetes.submit.facts import cluster_facts
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts, observe
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for
from longboat.engines.kubernetes.submit.facts.surroundings import Autoscaler, NodeUse, own_autoscaler
from longboat.kubeapi.errors import Unreachable
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.broken import apply, job_of, opened, pod, until, user_config

pytestmark = pytest.mark.cluster


class Chosen(msgspec.Struct):
    """Settings of a context."""

    storage: Storage | None = None
    queue: str | None = None
    service_account: str | None = None
    pull_secrets: tuple[str, ...] = ()


def look(
    cluster: Cluster, namespace: str, kubeconfig: Path | None = None, chosen: Chosen | None = None
) -> ClusterFacts:
    with opened(cluster, namespace, kubeconfig) as client:
        return observe(client, None, chosen)


def test_an_administrator_sees_everything_with_few_requests(cluster: Cluster, namespace: str) -> None:
    with opened(cluster, namespace) as client:
        seen = observe(client)
        requests = client.requests
    assert seen.version.startswith("v1.")
    assert seen.groups["batch"] == ("v1",) and "apps" in seen.groups
    assert not seen.has_jobset and not seen.has_kueue and seen.queues is None
    assert seen.denied == ()
    assert seen.nodes is not None and seen.sees_all_pods
    assert seen.quotas == () and seen.limits == () and seen.storage_classes == ()
    assert seen.has_namespace and seen.has_service_account and seen.pull_secrets == ()
    assert seen.security == "privileged" and seen.autoscaler is None
    assert requests <= 16


def test_plain_discovery_tells_the_same_groups(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server before 1.27 answers to the same question."""
    aggregated = look(cluster, namespace).groups
    monkeypatch.setattr(cluster_facts, "DISCOVERY", "application/json")
    assert look(cluster, namespace).groups.keys() == aggregated.keys()


def test_gpus_by_what_nodes_offer(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], kubectl: Kubectl
) -> None:
    kwok_nodes("2:h100x8")
    (small,) = kwok_nodes("1:l4x1")
    seen = look(cluster, namespace)
    assert [(offer.type, offer.total, offer.largest) for offer in seen.offers] == [
        ("NVIDIA-H100-80GB-HBM3", 16, 8),
        ("NVIDIA-L4", 1, 1),
    ]
    assert seen.gpu_resource(Gpus(count=2)) == "nvidia.com/gpu"
    assert seen.gpu_resource(Gpus()) is None
    assert seen.gpu_selector(Gpus(count=1, type="L4")) == {"nvidia.com/gpu.product": ("NVIDIA-L4",)}
    assert seen.gpu_selector(Gpus(count=1, memory=40 << 30)) == {"nvidia.com/gpu.product": ("NVIDIA-H100-80GB-HBM3",)}
    assert seen.gpu_selector(Gpus(count=1)) == {}
    parts = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}
    kubectl("patch", "node", small, "--subresource=status", "-p", json.dumps({"status": {"allocatable": parts}}))
    seen = look(cluster, namespace)
    assert seen.gpu_resource(Gpus(count=1, type="mig-1g.10gb")) == "nvidia.com/mig-1g.10gb"
    assert seen.gpu_resource(Gpus(count=1)) == "nvidia.com/gpu"


@pytest.mark.parametrize("resource", ["amd.com/gpu", "alpha.kubernetes.io/nvidia-gpu"])
def test_other_names_of_gpus(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], kubectl: Kubectl, resource: str
) -> None:
    (node,) = kwok_nodes("1:cpu")
    kubectl(
        "patch", "node", node, "--subresource=status", "-p", json.dumps({"status": {"allocatable": {resource: "4"}}})
    )
    assert look(cluster, namespace).gpu_resource(Gpus(count=1)) == resource


def test_a_device_class_counts_only_where_no_node_has_a_plain_resource(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], kubectl: Kubectl
) -> None:
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {},
    }
    apply(kubectl, body)
    try:
        assert look(cluster, namespace).gpu_resource(Gpus(count=1)) == "dra:gpu.nvidia.com"
        kwok_nodes("1:t4x4")
        assert look(cluster, namespace).gpu_resource(Gpus(count=1)) == "nvidia.com/gpu"
    finally:
        kubectl("delete", "deviceclass", "gpu.nvidia.com")


def test_what_pods_take_of_a_node(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], kubectl: Kubectl
) -> None:
    (node,) = kwok_nodes("1:cpu")
    requests = {"requests": {"cpu": "2", "memory": "1Gi"}}
    alone = pod("alone", resources=requests, nodeSelector={"kubernetes.io/hostname": node})
    body = pod("of-a-service", resources=requests, nodeSelector={"kubernetes.io/hostname": node})
    service = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "service"},
        "spec": {
            "selector": {"matchLabels": {"app": "service"}},
            "template": {
                "metadata": {"labels": {"app": "service"}},
                "spec": {**body["spec"], "restartPolicy": "Always"},
            },
        },
    }
    apply(kubectl, alone, service)

    def use() -> NodeUse | None:
        seen = look(cluster, namespace)
        mine = next(one for one in seen.nodes or () if one.node.name == node)
        return mine if dict(mine.used).get("pods") == 2 else None

    found = until("both pods are on the node", use)
    assert dict(found.used)["cpu"] == 4000 and dict(found.standing)["cpu"] == 2000
    assert found.daemons == () and found.is_ready


def test_somebody_with_few_rights_is_told_which_are_missing(
    cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "patch"]}]
    config = user_config(cluster, kubectl, namespace, tmp_path, rules)
    seen = look(cluster, namespace, config)
    denied = {str(one) for one in seen.denied}
    assert {"create jobs.batch", "create secrets", "delete configmaps", "create pods/exec"} <= denied
    assert not {"get configmaps", "create configmaps", "create jobsets.jobset.x-k8s.io"} & denied
    assert seen.nodes is None and seen.quotas is None and seen.has_namespace is None
    assert seen.storage_classes is None and seen.pull_secrets is None and not seen.sees_all_pods


def test_the_role_that_we_print_is_enough(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
    role = role_for(PERMISSIONS, namespace=namespace)
    rules = role["rules"]
    assert isinstance(rules, list)
    config = user_config(cluster, kubectl, namespace, tmp_path, rules)
    assert look(cluster, namespace, config).denied == ()


def test_rules_of_the_namespace(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubectl("create", "quota", "small", "--hard=requests.cpu=4,pods=3")
    limits = [{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}}]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    apply(
        kubectl,
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": {"limits": limits}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim},
    )
    with opened(cluster, namespace) as client:
        job = job_of(tmp_path, volumes={"/data": {"claim": "data"}})
        seen = observe(client, job, Chosen(service_account="trainer", pull_secrets=("registry",)))
    assert seen.security == "restricted"
    assert [(one.name, one.hard) for one in seen.quotas or ()] == [("small", {"pods": "3", "requests.cpu": "4"})]
    assert [(one.name, one.type, one.max) for one in seen.limits or ()] == [("sizes", "Container", {"cpu": "2"})]
    assert seen.claims is not None and seen.claims["data"].access_modes == ("ReadWriteOnce",)
    assert seen.service_account == "trainer" and seen.has_service_account is False
    assert seen.lost_secrets == ("registry",)


def test_a_namespace_that_is_not_there(cluster: Cluster) -> None:
    assert look(cluster, "no-such-namespace").has_namespace is False


STATUS = """
autoscalerStatus: Running
nodeGroups:
- name: https://cloud/groups/cpu
  health: {cloudProviderTarget: 3, minSize: 1, maxSize: 3}
- name: gpu
  health: {cloudProviderTarget: 1, minSize: 0, maxSize: 4}
"""


@pytest.mark.parametrize(
    ("text", "grows", "words"),
    [
        (STATUS, True, "gpu 1 of at most 4"),
        (STATUS.replace("maxSize: 4", "maxSize: 1"), False, "cpu 3 of at most 3"),
        ("Cluster-autoscaler status at 2023-01-01:\nCluster-wide:\n  Health: Healthy", None, ""),
    ],
)
def test_the_cluster_autoscaler_tells_its_pools(
    cluster: Cluster, namespace: str, kubectl: Kubectl, text: str, grows: bool | None, words: str
) -> None:
    meta = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"status": text}}
    kubectl("apply", "--namespace=kube-system", "-f", "-", text=json.dumps(body))
    try:
        found = look(cluster, namespace).autoscaler
    finally:
        kubectl("delete", "configmap", "--namespace=kube-system", meta["name"])
    assert found is not None and found.name == "cluster-autoscaler"
    assert found.can_grow is grows and words in found.detail


@pytest.mark.parametrize(
    ("age_s", "size", "grows"),
    [(0, 1, True), (0, 4, False), (3600, 1, None)],
    ids=["it works", "it is full", "it is gone"],
)
def test_our_own_autoscaler_tells_its_pools(
    cluster: Cluster, namespace: str, kubectl: Kubectl, age_s: int, size: int, grows: bool | None
) -> None:
    report = {"at": time.time() - age_s, "pools": [{"note": {"pool": "gpu", "reason": "", "size": size}, "max": 4}]}
    meta = {"name": "longboat-autoscaler-status"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"report": json.dumps(report)}}
    kubectl("apply", "-f", "-", text=json.dumps(body))
    detail = f"gpu {size} of at most 4"
    expected = None if grows is None else Autoscaler(name="longboat", can_grow=grows, detail=detail)
    assert look(cluster, namespace).autoscaler == expected


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pools": 3}', '{"at": "x"}', '{"at": 1, "pools": [{}]}'])
def test_what_is_no_report_is_no_autoscaler(text: str) -> None:
    assert own_autoscaler({"data": {"report": text}}, 0.0) is None


def test_a_server_that_does_not_answer_is_the_only_error(cluster: Cluster, namespace: str, api_proxy: ApiProxy) -> None:
    api_proxy.cut()
    with pytest.raises(Unreachable):
        look(cluster, namespace, Path(api_proxy.kubeconfig))


@pytest.mark.pods("controllers")
def test_jobset_and_queues_are_found(cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
    from testbed import kueue

    name = namespace  # the cluster is shared: its ClusterQueues must not clash
    bodies = kueue.queue(name, namespace, {"cpu": "4"})
    apply(kubectl, *bodies)
    try:

        def active() -> ClusterFacts | None:
            seen = look(cluster, namespace)
            queue = seen.queue(name)
            return seen if queue is not None and queue.is_active else None

        seen = until("the queue is active", active)
        assert seen.has_jobset and seen.has_kueue
        assert seen.queues is not None and [one.cluster_queue for one in seen.queues] == [name]
    finally:
        kubectl("delete", "localqueue", name)
        kubectl("delete", "clusterqueue,resourceflavor", name)
