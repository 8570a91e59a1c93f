"""What figures of bandwidth mean; and a real measurement between two pods."""

from __future__ import annotations

import pytest

from longboat.doctor.bandwidth import between_gpus, between_pods, largest_node, measure, without_gpus
from longboat.doctor.probes.outcomes import Interface, PodOutcome, PodReport, TrainProbe
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts, observe
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.doctor.conftest import target_of


def outcome(gigabits: float, *, node: str = "b", speed: int = 0) -> PodOutcome:
    report = PodReport(bits_per_s=gigabits * 1e9, streams=4, interfaces=(Interface(name="eth0", speed=speed),))
    return PodOutcome(node=node, report=report)


def test_between_pods() -> None:
    server = PodOutcome(node="a")
    assert between_pods(server, outcome(20)).status == "ok"
    assert between_pods(server, outcome(1)).status == "warning"
    promised = between_pods(server, outcome(20, speed=100_000))
    assert promised.status == "warning" and "promises 100" in promised.detail
    assert "says nothing of the network" in between_pods(server, outcome(40, node="a")).detail
    assert between_pods(PodOutcome(problem="no node"), PodOutcome(problem="no node")).status == "skipped"


def test_between_gpus() -> None:
    assert between_gpus(TrainProbe(gpus=8, node="a", bits_per_s=2.4e12)).status == "ok"
    assert between_gpus(TrainProbe(gpus=8, node="a", bits_per_s=50e9)).status == "warning"
    assert between_gpus(TrainProbe(gpus=8, framework="plain Python")).status == "skipped"
    assert "error 100" in between_gpus(TrainProbe(gpus=8, error="error 100")).detail


@pytest.mark.pods
def test_two_pods_measure(cluster: Cluster, namespace: str, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    from longboat.doctor.probes import probe

    monkeypatch.setattr(probe, "BANDWIDTH_S", 0.5)
    with target_of(cluster, namespace) as target:
        pods, gpus = measure(target, observe(target.client, None, target.settings))
    assert pods.status == "ok" and "Gbit/s over 4 connections on one node" in pods.detail
    assert "nothing to measure" in gpus.detail
    assert kubectl("get", "pods", "-o", "name") == ""


def test_what_was_not_measured_is_not_ok() -> None:
    silent = PodOutcome(node="a", report=PodReport(peer_error="timed out"))
    finding = between_pods(PodOutcome(node="a"), silent)
    assert finding.status == "skipped" and finding.detail.endswith("timed out")
    assert largest_node(None) is None and largest_node(ClusterFacts(namespace="team")) is None
    assert largest_node(ClusterFacts(namespace="team", nodes=())) == 0
    assert (without_gpus(None).status, without_gpus(0).status) == ("skipped", "ok")
