"""Pods with GPUs and their neighbours: what they carry, and what the real kube-scheduler makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from longboat.engines.kubernetes.manifests import gpu_packing
from longboat.kubeapi.kinds import POD
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.broken import apply, opened, pod, until

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("gpus", "size"), [(1, "1"), (2, "2"), (3, "4"), (4, "4"), (5, "8"), (7, "8"), (8, "8"), (16, "8")]
)
def test_the_class_of_a_pod(gpus: int, size: str) -> None:
    assert gpu_packing.size_label(gpus) == {"longboat.dev/gpus": size}


def test_pods_without_gpus_carry_nothing() -> None:
    assert gpu_packing.size_label(0) == {} and gpu_packing.preference(0) == {}


def test_neighbours_weigh_as_much_as_they_have_gpus() -> None:
    terms = gpu_packing.preference(1)["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    sizes = [term["podAffinityTerm"]["labelSelector"]["matchLabels"][gpu_packing.LABEL] for term in terms]
    assert dict(zip(sizes, [term["weight"] for term in terms])) == {"8": 100, "4": 50, "2": 25, "1": 12}


@pytest.mark.cluster
@pytest.mark.parametrize("prefers", [True, False])
def test_the_scheduler_fills_a_machine_before_the_next(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], kubectl: Kubectl, prefers: bool
) -> None:
    """Each asks for its share of CPUs and memory too, for which the scheduler by itself takes the emptiest node."""
    nodes = kwok_nodes("3:h100x8")
    sizes = (1, 2, 1, 4)  # together they fill one machine
    found = []
    with opened(cluster, namespace) as client:
        for number, gpus in enumerate(sizes):
            share = {"cpu": str(8 * gpus), "memory": f"{64 * gpus}Gi", GPU: str(gpus)}
            only = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}]
            here = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": only}}
            preference = gpu_packing.preference(gpus) if prefers else {}
            body = pod(
                f"pod-{number}",
                resources={"requests": share, "limits": {GPU: str(gpus)}},
                affinity={"nodeAffinity": here, **preference},
                tolerations=[{"operator": "Exists"}],
            )
            body["metadata"]["labels"].update(gpu_packing.size_label(gpus))
            apply(kubectl, body)
            name = body["metadata"]["name"]
            found.append(until("bound", lambda name=name: client.get(POD, name)["spec"].get("nodeName")))
    assert len(set(found)) == (1 if prefers else 3)
