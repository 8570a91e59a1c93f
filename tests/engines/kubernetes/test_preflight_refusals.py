"""Jobs refused by namespaces and nodes that really forbid them. As data: test_preflight."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import Refused
from longboat.engines.kubernetes.submit.facts.cluster_facts import observe
from longboat.engines.kubernetes.submit.preflight import check
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.broken import apply, job_of, opened, user_config


def refused(cluster: Cluster, namespace: str, tmp_path: Path, kubeconfig: Path | None = None, **fields: Any) -> Refused:
    """What is said to a job in a real namespace."""
    job = job_of(tmp_path, **fields)
    with opened(cluster, namespace, kubeconfig) as client, pytest.raises(Refused) as refusal:
        check(job, observe(client, job))
    return refusal.value


@pytest.mark.cluster
class TestReal:
    """The same in namespaces that really forbid it."""

    def test_quota(self, cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
        kubectl("create", "quota", "small", "--hard=requests.cpu=3,requests.memory=4Gi")
        error = refused(cluster, namespace, tmp_path, nodes=2, cpus=2, memory="1Gi")
        assert "quota small allows 3 CPUs (requests.cpu) and it asks for 4 CPUs" in error.message
        assert "`nodes: 1`" in (error.hint or "")

    def test_limit_range(self, cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
        spec = {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
        apply(kubectl, {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": spec})
        error = refused(cluster, namespace, tmp_path, memory="2Gi")
        assert "LimitRange sizes allows a container at most 1Gi" in error.message
        assert "`memory: 1Gi`" in (error.hint or "")

    def test_pod_security(self, cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
        kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=baseline")
        error = refused(cluster, namespace, tmp_path, volumes={"/models": {"path": "/srv/models"}})
        assert "volumes./models" in error.message and "baseline" in error.message

    def test_permissions(self, cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
        config = user_config(cluster, kubectl, namespace, tmp_path, [])
        error = refused(cluster, namespace, tmp_path, config)
        assert "get/list/watch/create/patch/delete jobs.batch (the nodes of a run)" in error.message
        assert f"role in namespace {namespace} with" in (error.hint or "")
        assert "get/list/watch/create/patch/delete on jobs.batch" in (error.hint or "")

    def test_claims(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]], tmp_path: Path
    ) -> None:
        kwok_nodes("2:cpu")
        error = refused(cluster, namespace, tmp_path, volumes={"/d": {"claim": "data"}})
        assert "there is no claim data" in error.message
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "none",
        }
        apply(
            kubectl, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
        )
        error = refused(cluster, namespace, tmp_path, volumes={"/d": {"claim": "data"}}, nodes=2)
        assert "one machine only" in error.message and "no storage class none" in error.message

    def test_nodes(
        self, cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], tmp_path: Path
    ) -> None:
        kwok_nodes("2:t4x4")
        error = refused(cluster, namespace, tmp_path, nodes=3, gpus="T4:4")
        assert "12 GPUs (3 x 4 T4) and there are 8" in error.message
        assert "`nodes: 2` with `gpus: 4` each" in (error.hint or "")
        error = refused(cluster, namespace, tmp_path, gpus="H100:1")
        assert "Tesla-T4 (8 on 2 nodes)" in error.message
        error = refused(cluster, namespace, tmp_path, gpus=1, cpus=64, memory="1Ti")
        assert error.hint == "nearest that fits: `cpus: 48` with `memory: 196608Mi`"

    def test_what_an_autoscaler_could_add_is_only_a_notice(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]], tmp_path: Path
    ) -> None:
        kwok_nodes("1:t4x4")
        meta = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
        group = "nodeGroups:\n- name: t4\n  health: {cloudProviderTarget: 1, maxSize: 9}\n"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"status": group}}
        kubectl("apply", "--namespace=kube-system", "-f", "-", text=json.dumps(body))
        try:
            job = job_of(tmp_path, nodes=2, gpus=4)
            with opened(cluster, namespace) as client:
                (notice,) = check(job, observe(client, job))
        finally:
            kubectl("delete", "configmap", "--namespace=kube-system", meta["name"])
        assert "8 GPUs" in notice and "cluster-autoscaler may add (t4 1 of at most 9)" in notice


@pytest.mark.pods("controllers")
def test_a_queue_that_is_not_there_names_those_that_are(
    cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    from testbed import kueue

    apply(kubectl, kueue.queue("research", namespace, {"cpu": "1"})[2])
    error = refused(cluster, namespace, tmp_path, queue="resaerch")
    assert "no queue resaerch" in error.message and "queues here: research" in (error.hint or "")
    kubectl("delete", "localqueue", "research")
