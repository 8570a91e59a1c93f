"""What Google Cloud charges by the hour besides machines: the control plane. Pure."""

from __future__ import annotations

from longboat.clusters.cloud.cost import CostLine
from longboat.clusters.cloud.spec import CloudSpec

CONTROL_PLANE = 0.10  # the first zonal cluster of an account is free


def fixed_charges(_spec: CloudSpec) -> tuple[CostLine, ...]:
    return (CostLine(item="GKE control plane", count=1, price=CONTROL_PLANE),)
