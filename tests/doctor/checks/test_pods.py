"""What probe pods saw, as reports of broken networks, images and limits; DNS, policies and claims too."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.doctor.checks.pods import matches
from longboat.doctor.facts import CLAIMS, CLUSTER, DNS, NETWORK_PROBE, POLICIES, STORAGE_PROBE, TRAIN_PROBE
from longboat.doctor.probes.outcomes import Interface, NetworkProbe, PodOutcome, PodReport, StorageProbe, TrainProbe
from longboat.engines.kubernetes.explain.network_policies import BlockedTraffic
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.surroundings import StorageClass
from tests.doctor.checks.judging import judged, status

FIT = {
    "python": "3.12.1",
    "interfaces": (Interface(name="eth0", mtu=1450),),
    "mtu": 1450,
    "mtu_wanted": 1450,
    "shm": 64 << 20,
    "files": 1 << 20,
    "clock": 1000.0,
}
POD_CHECKS = (
    "pod start", "image pull", "image python", "pod logs", "dns lookup", "services", "pod to pod", "mtu",
    "pod shared memory", "nccl interfaces", "limits", "pod clock",
)  # fmt: skip


def probe(wanted: str = "", outcome: dict[str, Any] | None = None, **report: Any) -> dict[Any, Any]:
    server = PodOutcome(node="a", started_s=2.0)
    seen = None if outcome and outcome.get("problem") else PodReport(**{**FIT, **report})
    client = PodOutcome(**{"node": "b", "asked": 1003.0, "report": seen, **(outcome or {})})
    return {NETWORK_PROBE: NetworkProbe(server=server, client=client, image="python", interface_wanted=wanted)}


def test_a_network_that_is_fit() -> None:
    assert {name: status(name, probe()) for name in POD_CHECKS} == dict.fromkeys(POD_CHECKS, "ok")
    assert judged("pod to pod", probe()).detail.startswith("b to a in ")
    assert "only one node" in judged("pod to pod", probe(outcome={"node": "a"})).detail


@pytest.mark.parametrize(
    ("name", "facts", "wanted"),
    [
        ("dns lookup", {"dns_error": "Temporary failure in name resolution"}, "broken"),
        ("dns lookup", {"dns_s": 5.0}, "warning"),
        ("services", {"service_error": "timed out"}, "broken"),
        ("pod to pod", {"peer_error": "timed out"}, "broken"),
        ("mtu", {"mtu": 1400}, "broken"),
        ("mtu", {"peer_error": "timed out"}, "skipped"),
        ("pod shared memory", {"shm": 0}, "broken"),
        ("nccl interfaces", {"interfaces": (Interface(name="eth0"), Interface(name="net1"))}, "warning"),
        ("nccl interfaces", {"wanted": "ib"}, "broken"),
        ("nccl interfaces", {"wanted": "eth", "interfaces": (Interface(name="eth0"), Interface(name="net1"))}, "ok"),
        ("limits", {"infiniband": ("mlx5_0",), "memlock": 65536}, "broken"),
        ("limits", {"infiniband": ("mlx5_0",), "memlock": -1}, "ok"),
        ("limits", {"files": 1024}, "warning"),
        ("pod clock", {"clock": 1100.0}, "warning"),
        ("pod clock", {"clock": 100.0}, "warning"),
        ("image python", {"python": "3.6.9"}, "broken"),
        ("pod logs", {"outcome": {"log_error": "dial tcp: i/o timeout"}}, "broken"),
        ("pod logs", {"outcome": {"log_is_forbidden": True}}, "skipped"),
        ("image pull", {"outcome": {"problem": "image x: not found", "kind": "image"}}, "broken"),
        ("pod start", {"outcome": {"problem": "0/3 nodes are available", "kind": "scheduling"}}, "broken"),
        ("pod start", {"outcome": {"problem": "denied by policy", "kind": "admission"}}, "broken"),
        ("image python", {"outcome": {"problem": "StartError", "kind": "end"}}, "broken"),
        ("dns lookup", {"outcome": {"problem": "image x: not found", "kind": "image"}}, "skipped"),
    ],
)
def test_what_is_broken(name: str, facts: dict[str, Any], wanted: str) -> None:
    assert status(name, probe(**facts)) == wanted


def test_names_of_interfaces_as_nccl_reads_them() -> None:
    names = ["eth0", "net1"]
    assert matches("eth", names) and matches("=net1", names) and matches("ib0,net", names) and matches("^eth", names)
    assert not matches("=eth", names) and not matches("ib", names) and not matches("^eth,net", names)


def test_one_step_of_a_training() -> None:
    fit = {"node": "a", "framework": "torch 2.9 on cuda", "loss_before": 2.0, "loss_after": 1.0}
    assert status("train step", {TRAIN_PROBE: TrainProbe(**fit)}) == "ok"
    for change in (
        {"error": "CUDA error 100", "gpus": 1},
        {"loss_after": float("nan")},
        {"problem": "x", "kind": "end"},
    ):
        assert status("train step", {TRAIN_PROBE: TrainProbe(**{**fit, **change})}) == "broken"
    busy = {"problem": "0/1 nodes: 1 Insufficient nvidia.com/gpu.", "kind": "scheduling", "gpus": 1}
    assert status("train step", {TRAIN_PROBE: TrainProbe(**{**fit, **busy})}) == "skipped"


def test_dns_and_policies() -> None:
    assert status("dns", {DNS: 2}) == "ok" and status("dns", {DNS: 0}) == "broken"
    assert status("network policies", {POLICIES: []}) == "ok"
    blocked = BlockedTraffic(what="ingress from the other pods", policies=("deny",))
    assert "NetworkPolicy deny" in judged("network policies", {POLICIES: [blocked]}).detail


def test_storage() -> None:
    def classes(*names: str, default: tuple[str, ...] = ()) -> dict[Any, Any]:
        made = tuple(StorageClass(name=name, is_default=name in default) for name in names)
        return {CLUSTER: ClusterFacts(namespace="team", storage_classes=made)}

    assert status("storage classes", classes("ssd", default=("ssd",))) == "ok"
    assert status("storage classes", classes("ssd")) == status("storage classes", classes()) == "warning"
    assert status("storage classes", classes("a", "b", default=("a", "b"))) == "warning"
    assert status("storage classes", {CLUSTER: ClusterFacts(namespace="team")}) == "skipped"
    for phase, wanted in (("Bound", "ok"), ("Pending", "warning"), ("Lost", "broken")):
        assert status("claims", {CLAIMS: [{"metadata": {"name": "c"}, "status": {"phase": phase}}]}) == wanted
    assert status("claim", {STORAGE_PROBE: StorageProbe(title="a new claim", took_s=1.0)}) == "ok"
    assert (
        status("claim", {STORAGE_PROBE: StorageProbe(title="a new claim", problem="the claim is Pending")}) == "broken"
    )
    assert status("claim", {STORAGE_PROBE: StorageProbe(skipped="no class")}) == "skipped"
