"""What AWS charges by the hour besides machines: the control plane, the NAT gateway, public addresses. Pure."""

from __future__ import annotations

from longboat.clusters.cloud.cost import CostLine
from longboat.clusters.cloud.spec import CloudSpec

CONTROL_PLANE = 0.10  # of a version in standard support
NAT_GATEWAY = 0.045  # us-east-1; traffic is charged besides
PUBLIC_ADDRESS = 0.005


def fixed_charges(spec: CloudSpec) -> tuple[CostLine, ...]:
    lines = [CostLine(item="EKS control plane", count=1, price=CONTROL_PLANE)]
    machines = sum(pool.count for pool in spec.pools)
    if spec.network.is_new and spec.network.nodes == "private":
        lines.append(CostLine(item="NAT gateway", count=1, price=NAT_GATEWAY, note="and 0.045 USD per GB through it"))
        lines.append(CostLine(item="public address", count=1, price=PUBLIC_ADDRESS))
    elif spec.network.is_new:
        lines.append(CostLine(item="public address", count=machines, price=PUBLIC_ADDRESS))
    if spec.storage is not None:
        lines.append(CostLine(item="EFS", count=1, price=0.0, note="by what is stored, read and written"))
    return tuple(lines)
