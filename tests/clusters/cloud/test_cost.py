"""The cost of a plan."""

from __future__ import annotations

import pytest

from longboat.clouds.machine_types import parse_table
from longboat.clusters.cloud.aws.charges import fixed_charges
from longboat.clusters.cloud.cost import plan_cost
from longboat.clusters.cloud.spec import CloudNetwork, CloudPool, CloudSpec

HEAD = "type,cpus,memory_gib,gpus,gpu,gpu_memory_gib,price\n"


def test_machines_control_plane_and_gateway() -> None:
    table = parse_table(f"# Test prices, 2026-01.\n{HEAD}a1.x,2,8,0,,0,0.5\nb1.x,8,64,4,H100,80,10\n")
    pools = (
        CloudPool(name="cpu", type="a1.x", count=2, min=2, max=2),
        CloudPool(name="gpu", type="b1.x", count=1, min=0, max=3, spot=True),
    )
    spec = CloudSpec(region="us-east-1", pools=pools)
    cost = plan_cost(spec, table, fixed_charges(spec))
    assert cost.per_hour == pytest.approx(0.10 + 0.045 + 0.005 + 2 * 0.5 + 10)
    assert cost.text == "11.15 USD per hour, about 268 USD per day if left on; at most 31.15 USD per hour"
    assert cost.note == "Test prices, 2026-01."
    assert [line.note for line in cost.lines if "gpu" in line.item] == ["spot: at most"]


def test_public_nodes_pay_for_their_addresses() -> None:
    pools = (CloudPool(name="cpu", type="m5.large", count=4, min=4, max=4),)
    spec = CloudSpec(region="us-east-1", pools=pools, network=CloudNetwork(nodes="public"))
    assert [(line.item, line.count) for line in fixed_charges(spec)] == [
        ("EKS control plane", 1),
        ("public address", 4),
    ]
