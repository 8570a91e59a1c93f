"""The doctor between two real nodes: the way is there, drops large packets, and is closed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from longboat.doctor.examine import ClusterTarget, examine_cluster
from longboat.doctor.findings import Finding
from longboat.doctor.probes.pod_program import PORT
from longboat.kubeapi import kinds
from testbed import faults, namespaces
from testbed.clusters import Cluster
from tests.engines.kubernetes.faults.grounds import Ground

pytestmark = [
    pytest.mark.pods,
    pytest.mark.soak,
    pytest.mark.xdist_group("own-cluster"),
    pytest.mark.parametrize("flavour", ["job"]),
]


@contextlib.contextmanager
def dropping(cluster: Cluster, *rules: str) -> Iterator[None]:
    """Both nodes pass no packet of these kinds: hook, priority, and what nft matches."""
    holders = [faults.real_holder_of(cluster, number) for number in range(2)]
    chains = [
        f"chain c{number} {{ type filter hook {hook} priority {priority}; {rule}; }}"
        for number, (hook, priority, rule) in enumerate(text.split(" ", 2) for text in rules)
    ]
    with contextlib.ExitStack() as last:
        for holder in holders:
            namespaces.run(holder, ["nft", "-f", "-"], "table inet doctor_test {\n" + "\n".join(chains) + "\n}\n")
            last.callback(namespaces.run, holder, ["nft", "delete", "table", "inet", "doctor_test"])
        yield


def test_the_way_between_nodes(own_ground: Ground, own_cluster: Cluster) -> None:
    engine = own_ground.engine
    target = ClusterTarget(engine.client, engine.settings, engine.environment)

    def found() -> dict[str, Finding]:
        return {finding.name: finding for finding in examine_cluster(target, with_pods=True).findings}

    with dropping(own_cluster, f"forward -10 udp dport {PORT} meta length > 1300 drop"):
        small = found()
    assert small["pod to pod"].status == "ok" and "node-" in small["pod to pod"].detail
    assert "only one node" not in small["pod to pod"].detail
    assert small["mtu"].status == "broken" and "MTU of the network plugin" in (small["mtu"].hint or ""), small["mtu"]
    service = engine.client.get(kinds.SERVICE, "kubernetes", namespace="default")["spec"]["clusterIP"]
    with dropping(
        own_cluster,
        f"forward -10 tcp dport {PORT} drop",
        f"prerouting -300 ip daddr {service} drop",  # before kube-proxy's rules
        "input -10 tcp dport 10250 reject with tcp reset",
    ):
        closed = found()
    assert closed["services"].status == "broken" and "timed out" in closed["services"].detail
    assert closed["pod logs"].status == "broken" and "10250" in (closed["pod logs"].hint or ""), closed["pod logs"]
    assert closed["pod to pod"].status == "broken" and "timed out" in closed["pod to pod"].detail
    assert closed["mtu"].status == "skipped" and closed["train step"].status == "ok"


def test_an_api_server_without_its_etcd(own_ground: Ground, own_cluster: Cluster) -> None:
    engine = own_ground.engine
    target = ClusterTarget(engine.client, engine.settings, engine.environment)
    faults.pause(own_cluster, "etcd")
    try:
        found = {finding.name: finding for finding in examine_cluster(target, with_pods=False).findings}
    finally:
        faults.resume(own_cluster, "etcd")
    assert found["api health"].status == "broken" and "etcd" in found["api health"].detail
    assert found["nodes"].status in ("broken", "skipped")
