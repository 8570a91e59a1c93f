"""Policies: Longboat's own, models of others from their documented rules, a fixed cluster, and the oracle.

What happens to the machines they ask for is `simulator.world`'s. May import `autoscaler`, `fitting`.
"""

from __future__ import annotations

from longboat.autoscaler.model.snapshot import AutoscalerSettings
from longboat.simulator.policies.policy import Policy

NAMES = ("longboat", "cluster-autoscaler", "karpenter", "ec2-autoscaler", "static", "oracle")
MODELS = ("cluster-autoscaler", "karpenter", "ec2-autoscaler")


def policy_of(name: str, settings: AutoscalerSettings, *, interval_s: float = 10.0, seed: int = 0) -> Policy:
    """A fresh one; the oracle is no policy and is computed by `oracle`. Settings and interval are Longboat's alone."""
    if name == "longboat":
        from longboat.simulator.policies.longboat import Longboat

        return Longboat(settings, interval_s)
    if name == "cluster-autoscaler":
        from longboat.simulator.policies.cluster_autoscaler import ClusterAutoscaler

        return ClusterAutoscaler(seed)
    if name == "karpenter":
        from longboat.simulator.policies.karpenter import Karpenter

        return Karpenter()
    if name == "ec2-autoscaler":
        from longboat.simulator.policies.ec2_autoscaler import Ec2Autoscaler

        return Ec2Autoscaler()
    if name == "static":
        from longboat.simulator.policies.static import Static

        return Static()
    raise ValueError(name)
