"""GPUs that nobody has, of what a cluster's nodes and pods say."""

from __future__ import annotations

from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.engines.kubernetes.gate.node_usage import free_gpus
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape

GPU = "nvidia.com/gpu"


def test_gpus_that_no_pod_asked_for() -> None:
    asks = PodShape(requests=((GPU, 3),))
    usage = ClusterUsage(
        nodes=(
            NodeShape(name="a", allocatable=((GPU, 4), ("cpu", 8000)), labels={"nvidia.com/gpu.product": "H100"}),
            NodeShape(name="b", allocatable=((GPU, 2),), is_unschedulable=True),
            NodeShape(name="c", allocatable=(("cpu", 8000),)),
            NodeShape(name="d", allocatable=((GPU, 2),)),
        ),
        pods=(
            Pod(name="p", node="a", shape=asks),
            Pod(name="waits", shape=asks),
            Pod(name="over", node="d", shape=asks),
            Pod(name="gone", node="a", shape=asks, is_finished=True),
        ),
    )
    assert [(gpu.node, gpu.model, gpu.run) for gpu in free_gpus(usage)] == [("a", "H100", "")]
