"""`longboat doctor --on CONTEXT` on real clusters: whole, with few rights, and out of reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.proxy import ApiProxy
from tests.doctor.conftest import Findings
from tests.engines.kubernetes.broken import user_config

Examine = Callable[..., Findings]


@pytest.mark.pods
def test_a_real_cluster_is_fit_and_nothing_is_left(examine: Examine, kubectl: Kubectl) -> None:
    found = examine(with_pods=True)
    assert not [finding for finding in found.values() if finding.status == "broken"]
    for name in (
        "api",
        "version",
        "namespace",
        "permissions",
        "nodes",
        "dns",
        "heartbeats",
        "pod to pod",
        "train step",
    ):
        assert found[name].status == "ok", found[name]
    assert found["claim"].status == "skipped" and found["storage classes"].status == "warning"
    assert "only one node" in found["pod to pod"].detail and "plain Python" in found["train step"].detail
    assert kubectl("get", "pods,pvc", "-o", "name") == ""


@pytest.mark.cluster
def test_gpus_and_few_rights(
    cluster: Cluster,
    namespace: str,
    kubectl: Kubectl,
    kwok_nodes: Callable[..., list[str]],
    tmp_path: Path,
    examine: Examine,
) -> None:
    kwok_nodes("2:h100x8")
    found = examine()
    assert "NVIDIA-H100-80GB-HBM3 (16 on 2 nodes) as nvidia.com/gpu" in found["gpus"].detail
    assert "2 of 2 ready" in found["nodes"].detail
    assert found["dns"].status == "broken"  # there is none
    assert found["controller"].status == "warning" and "has no controller" in found["controller"].detail
    assert "longboat install" in (found["controller"].hint or "")
    limited = examine(user_config(cluster, kubectl, namespace, tmp_path, []), with_pods=True)
    assert limited["permissions"].status == "broken" and "patch/delete jobs.batch" in limited["permissions"].detail
    assert "role in namespace" in (limited["permissions"].hint or "")
    wanted = {
        "nodes": "no right to list nodes",
        "heartbeats": "no right to list leases.coordination.k8s.io",
        "controller": "no right to get deployments.apps",
        "webhooks": "no right to list validatingwebhookconfigurations.admissionregistration.k8s.io",
        "pod start": "no right to create pods",
        "train step": "no right to create pods",
    }
    assert {name: limited[name].detail for name in wanted} == wanted
    assert {limited[name].status for name in wanted} == {"skipped"}


@pytest.mark.cluster
def test_a_namespace_that_is_not_there(examine: Examine) -> None:
    found = examine(place="no-such-namespace")
    assert found["namespace"].status == "broken" and "create namespace" in (found["namespace"].hint or "")


@pytest.mark.cluster
def test_out_of_reach(examine: Examine, api_proxy: ApiProxy) -> None:
    api_proxy.cut()
    found = examine(Path(api_proxy.kubeconfig))
    assert set(found) == {"kubeconfig", "kubeconfig mode", "credentials", "api"}
    assert found["api"].status == "broken" and found["api"].hint
