"""`longboat doctor --on CONTEXT` on real clusters: whole, with few rights, and out of reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.core.plans import DoctorCheck
from longboat.engines.kubernetes.doctor import examine
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.broken import opened, user_config


def checks(cluster: Cluster, namespace: str, kubeconfig: Path | None = None) -> dict[str, DoctorCheck]:
    with opened(cluster, namespace, kubeconfig) as client:
        return {check.name: check for check in examine(client)}


@pytest.mark.pods
def test_a_real_cluster_is_fit(cluster: Cluster, namespace: str) -> None:
    found = checks(cluster, namespace)
    assert not [check for check in found.values() if check.ok is False]
    for name in ("cluster", "version", "namespace", "permissions", "nodes", "dns"):
        assert found[name].ok, found[name]
    assert found["gpus"].ok is None and found["storage"].ok is None and found["kueue"].ok is None


@pytest.mark.cluster
def test_gpus_and_few_rights(
    cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]], tmp_path: Path
) -> None:
    kwok_nodes("2:h100x8")
    found = checks(cluster, namespace)
    assert "NVIDIA-H100-80GB-HBM3 (16 on 2 nodes) as nvidia.com/gpu" in found["gpus"].detail
    assert "2 of 2 ready" in found["nodes"].detail
    assert found["dns"].ok is None  # there is none
    assert found["controller"].ok is None and "has no controller" in found["controller"].detail
    assert "longboat install" in (found["controller"].hint or "")
    limited = checks(cluster, namespace, user_config(cluster, kubectl, namespace, tmp_path, []))
    assert limited["permissions"].ok is False and "patch/delete jobs.batch" in limited["permissions"].detail
    assert "role in namespace" in (limited["permissions"].hint or "")
    assert limited["nodes"].ok is None and limited["gpus"].ok is None
    assert limited["controller"].detail == "may not be looked at"


@pytest.mark.cluster
def test_a_namespace_that_is_not_there(cluster: Cluster) -> None:
    found = checks(cluster, "no-such-namespace")
    assert found["namespace"].ok is False and "create namespace" in (found["namespace"].hint or "")


@pytest.mark.cluster
def test_out_of_reach(cluster: Cluster, namespace: str, api_proxy: ApiProxy) -> None:
    api_proxy.cut()
    found = checks(cluster, namespace, Path(api_proxy.kubeconfig))
    assert list(found) == ["cluster"] and found["cluster"].ok is False and found["cluster"].hint
