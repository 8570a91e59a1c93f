"""GPUs of a cluster as data: nodes and pods in, stocks out."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.engines.kubernetes.submit.outlook import INSTANCE_TYPE, machine_types
from longboat.fitting.model.nodes import NodeShape
from longboat.multicluster.inventory import GpuStock, cluster_stocks
from longboat.multicluster.prices import gpu_hour_of
from tests.fitting.bodies import GPU, gang, node, pod


def machine(name: str, gpus: int, kind: str, type: str = "", **fields: Any) -> NodeShape:
    shape = node(name, {GPU: str(gpus), "cpu": "8"})
    labels = {**shape.labels, "nvidia.com/gpu.product": kind, **({INSTANCE_TYPE: type} if type else {})}
    return msgspec.structs.replace(shape, labels=labels, **fields)


def test_what_is_free_of_each_kind_and_what_it_costs() -> None:
    nodes = (
        machine("a", 8, "NVIDIA-H100-80GB-HBM3", "p5.48xlarge"),
        machine("b", 8, "NVIDIA-H100-80GB-HBM3", "p5.48xlarge"),
        machine("c", 4, "Tesla-T4"),
        machine("d", 4, "Tesla-T4", is_unschedulable=True),
    )
    room = ClusterUsage(nodes=nodes, pods=(pod("p", {GPU: "5"}, nodeName="a"),))
    price = gpu_hour_of(["p5.48xlarge"])
    assert price is not None and price > 1
    assert cluster_stocks("lab", room, None) == [
        GpuStock(
            on="lab", gpu="NVIDIA-H100-80GB-HBM3", total=16, free=11, largest=8, nodes=2, memory=80 * 10**9,
            price=price,
        ),
        GpuStock(on="lab", gpu="Tesla-T4", total=8, free=4, largest=4, nodes=2),
    ]  # fmt: skip
    assert {stock.price for stock in cluster_stocks("lab", room, 0.5)} == {0.5}
    assert machine_types(gang(1, {GPU: "1"}), nodes) == ("p5.48xlarge",)
    assert machine_types(gang(1, {"cpu": "1"}), nodes) == ()
