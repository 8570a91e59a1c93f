"""GPUs that nodes offer, by the labels of several vendors and clouds."""

from __future__ import annotations

from longboat.core.jobs import Gpus
from longboat.engines.kubernetes.submit.facts.gpu_inventory import LEGACY_GPU, offer_for, offers_of, selector_for
from longboat.fitting.model.nodes import NodeShape


def test_labels_of_nodes_that_have_a_type_of_gpu() -> None:
    labels: list[dict[str, str]] = [
        {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "x": "h100"},
        {"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"},
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"karpenter.k8s.aws/instance-gpu-name": "a10g"},
        {},
    ]
    nodes = [
        NodeShape(name=f"node-{number}", labels=each, allocatable=(("nvidia.com/gpu", 8),))
        for number, each in enumerate(labels)
    ]
    assert selector_for(Gpus(count=1, type="H100"), offers_of(nodes)) == {
        "cloud.google.com/gke-accelerator": ("nvidia-h100-80gb",),
        "nvidia.com/gpu.product": ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"),
    }
    assert selector_for(Gpus(count=1, type="H100-80GB"), offers_of(nodes[:1])) != {}
    assert selector_for(Gpus(count=1, type="B200"), offers_of(nodes)) == {}
    assert selector_for(Gpus(count=1), offers_of(nodes)) == {}


def test_the_old_name_is_asked_for_only_where_nodes_offer_no_other() -> None:
    def asked(*counts: dict[str, int]) -> str:
        nodes = [NodeShape(name=f"n{at}", allocatable=tuple(each.items())) for at, each in enumerate(counts)]
        offer = offer_for(Gpus(count=1), offers_of(nodes))
        assert offer is not None
        return offer.resource

    assert asked({LEGACY_GPU: 4}) == LEGACY_GPU
    assert asked({LEGACY_GPU: 4}, {"nvidia.com/gpu": 1}) == "nvidia.com/gpu"
    assert asked({LEGACY_GPU: 4, "nvidia.com/gpu": 4}) == "nvidia.com/gpu"  # the same GPUs by both names
    assert asked({LEGACY_GPU: 4, "nvidia.com/mig-1g.10gb": 7}) == LEGACY_GPU
