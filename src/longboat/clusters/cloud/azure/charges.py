"""What Azure charges by the hour besides machines: the control plane, the load balancer and its address. Pure."""

from __future__ import annotations

from longboat.clusters.cloud.cost import CostLine
from longboat.clusters.cloud.spec import CloudSpec

CONTROL_PLANE = 0.10  # of the tier Standard, with an uptime that is promised
LOAD_BALANCER = 0.025  # AKS makes one, through which nodes reach the internet
PUBLIC_ADDRESS = 0.005


def fixed_charges(_spec: CloudSpec) -> tuple[CostLine, ...]:
    return (
        CostLine(item="AKS control plane", count=1, price=CONTROL_PLANE),
        CostLine(item="load balancer", count=1, price=LOAD_BALANCER, note="and by what goes through it"),
        CostLine(item="public address", count=1, price=PUBLIC_ADDRESS),
    )
