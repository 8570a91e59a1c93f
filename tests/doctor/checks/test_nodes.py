"""Nodes, as facts of broken ones."""

from __future__ import annotations

from typing import Any

from longboat.doctor.facts import CLUSTER, LEASES, NODES
from longboat.doctor.values import LeaseTimes
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.surroundings import uses_of
from tests.doctor.checks.judging import judged, status

NOW = 1_700_000_000.0


def node(name: str = "a", *, ready: str = "True", spec: Any = None, **conditions: str) -> dict[str, Any]:
    listed = [
        {"type": kind, "status": value, "message": "why"} for kind, value in {"Ready": ready, **conditions}.items()
    ]
    info = {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "containerd://2.4.2"}
    status = {"conditions": listed, "allocatable": {"cpu": "8", "memory": "32Gi"}, "nodeInfo": info}
    return {"metadata": {"name": name}, "spec": spec or {}, "status": status}


def cluster(*nodes: dict[str, Any], version: str = "v1.36.0") -> dict[Any, Any]:
    return {CLUSTER: ClusterFacts(namespace="team", version=version, nodes=uses_of(nodes, [])), NODES: list(nodes)}


def versioned(kubelet: str = "v1.36.4", runtime: str = "containerd://2.4.2") -> dict[str, Any]:
    body = node()
    body["status"]["nodeInfo"] = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    return body


def test_ready_ones() -> None:
    assert judged("nodes", cluster(node())).detail == "1 of 1 ready: 8 CPUs, 32Gi of memory"
    some = judged("nodes", cluster(node(), node("b", ready="Unknown")))
    assert some.status == "warning" and some.detail.endswith("not ready: b") and "node b" in (some.hint or "")
    assert status("nodes", cluster(node(ready="False"))) == "broken"
    assert status("nodes", cluster()) == "broken"
    assert status("nodes", {CLUSTER: ClusterFacts(namespace="team")}) == "skipped"


def test_pressure() -> None:
    assert status("node pressure", cluster(node(MemoryPressure="False"))) == "ok"
    pressed = judged("node pressure", cluster(node(DiskPressure="True")))
    assert pressed.status == "broken" and pressed.detail == "a: DiskPressure (why)"


def test_cordons_and_taints() -> None:
    assert status("cordoned nodes", cluster(node(spec={"unschedulable": True}))) == "warning"
    assert status("cordoned nodes", cluster(node())) == "ok"
    tainted = node(spec={"taints": [{"key": "team", "effect": "NoSchedule"}]})
    assert judged("taints", cluster(tainted)).detail == "every node has a taint: team:NoSchedule"
    assert status("taints", cluster(tainted, node("b"))) == "ok"
    assert status("taints", cluster(node(spec={"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}))) == "ok"


def test_versions() -> None:
    assert status("kubelet versions", cluster(versioned())) == "ok"
    assert "newer than" in judged("kubelet versions", cluster(versioned("v1.37.0"))).detail
    assert "older than" in judged("kubelet versions", cluster(versioned("v1.32.9"))).detail
    assert status("kubelet versions", cluster(versioned("v1.33.0"))) == "ok"
    assert status("container runtimes", cluster(versioned(runtime="containerd://1.6.20"))) == "warning"
    assert status("container runtimes", cluster(versioned(runtime="cri-o://1.30.0"))) == "ok"


def test_leases() -> None:
    def leases(renewed: float) -> dict[Any, Any]:
        return {**cluster(node()), LEASES: LeaseTimes(now=NOW, renewed=(("a", renewed), ("gone", 0.0)))}

    assert status("heartbeats", leases(NOW - 9)) == "ok"
    assert "a (2m ago)" in judged("heartbeats", leases(NOW - 120)).detail
    assert status("node clocks", leases(NOW + 2)) == "ok"
    assert judged("node clocks", leases(NOW + 90)).detail == "clocks of nodes are ahead: a (90 s)"


def test_addresses_of_pods() -> None:
    def cidrs(*texts: str) -> dict[Any, Any]:
        return cluster(*(node(f"n{at}", spec={"podCIDR": text}) for at, text in enumerate(texts)))

    assert status("pod addresses", cidrs("10.0.0.0/24", "10.0.1.0/24")) == "ok"
    assert judged("pod addresses", cidrs("10.0.0.0/24", "10.0.0.0/24")).detail.endswith("10.0.0.0/24 (n0, n1)")
    assert status("pod addresses", cidrs("10.0.0.0/24", "")) == "warning"
    assert status("pod addresses", cidrs("", "")) == "ok"
