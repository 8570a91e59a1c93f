"""The NetworkPolicy of a run: of all pods, only those of the same run may open connections to its pods. Pure.

Ingress only: what the pods may reach is not restricted. Policies add up, so one of the user's own opens more. Whether
any is enforced is up to the cluster's network; logs, exec and port forwarding come from the kubelet, and are not
subject to policies.
"""

from __future__ import annotations

from typing import Any

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.records import Record
from longboat.kubeapi.kinds import NETWORK_POLICY

SWITCH = "longboat config set kubernetes.network_policy false"


def policy_name(run: str, uid: str) -> str:
    """Name with the run's uid: the policy of an earlier run of this name may not be garbage-collected yet."""
    return f"{run}-{uid[:8]}"


def network_policy(record: Record) -> dict[str, Any]:
    pods = {"matchLabels": {names.RUN: record.name}}
    return {
        "apiVersion": NETWORK_POLICY.api_version,
        "kind": NETWORK_POLICY.kind,
        "metadata": {"name": policy_name(record.name, record.uid)},
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": pods}]}],
        },
    }
