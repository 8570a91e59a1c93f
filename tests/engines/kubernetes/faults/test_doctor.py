"""The doctor between two real nodes: the way is there, drops large packets, and is closed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from longboat.doctor.examine import ClusterTarget, examine_cluster
from longboat.doctor.findings import Finding
from longboat.doctor.probes.pod_program import PORT
from testbed import faults, namespaces
from testbed.clusters import Cluster
from tests.engines.kubernetes.faults.grounds import Ground

pytestmark = [pytest.mark.pods, pytest.mark.xdist_group("own-cluster"), pytest.mark.parametrize("flavour", ["job"])]


@contextlib.contextmanager
def dropping(cluster: Cluster, rule: str) -> Iterator[None]:
    """Node 1 forwards no packet of this kind."""
    holder = faults.real_holder_of(cluster, 1)
    chain = f"chain forward {{ type filter hook forward priority -10; {rule} drop; }}"
    namespaces.run(holder, ["nft", "-f", "-"], f"table inet doctor_test {{ {chain} }}\n")
    try:
        yield
    finally:
        namespaces.run(holder, ["nft", "delete", "table", "inet", "doctor_test"])


def test_the_way_between_nodes(own_ground: Ground, own_cluster: Cluster) -> None:
    engine = own_ground.engine
    target = ClusterTarget(engine.client, engine.settings, engine.environment)

    def found() -> dict[str, Finding]:
        return {finding.name: finding for finding in examine_cluster(target, with_pods=True).findings}

    with dropping(own_cluster, f"udp dport {PORT} meta length > 1300"):
        small = found()
    assert small["pod to pod"].status == "ok" and "node-" in small["pod to pod"].detail
    assert "only one node" not in small["pod to pod"].detail
    assert small["mtu"].status == "broken" and "MTU of the network plugin" in (small["mtu"].hint or ""), small["mtu"]
    with dropping(own_cluster, f"tcp dport {PORT}"):
        closed = found()
    assert closed["pod to pod"].status == "broken" and "timed out" in closed["pod to pod"].detail
    assert closed["mtu"].status == "skipped" and closed["train step"].status == "ok"
