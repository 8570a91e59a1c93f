"""Answers of GKE about a cluster as values."""

from __future__ import annotations

from longboat.clusters.cloud.gcp.cluster_view import read_cluster_view

POOL = {
    "name": "gpu",
    "status": "RUNNING_WITH_ERROR",
    "config": {"machineType": "g2-standard-8", "spot": True, "taints": [{"key": "b", "effect": "NO_EXECUTE"}]},
    "autoscaling": {"enabled": True, "totalMinNodeCount": 1, "totalMaxNodeCount": 4},
    "conditions": [{"code": "GCE_STOCKOUT", "message": "sold\n out"}, {"canonicalCode": "UNAVAILABLE"}],
}


def test_a_cluster_that_has_just_begun_has_little() -> None:
    view = read_cluster_view({"status": "PROVISIONING"})
    assert (view.owner, view.endpoint, view.pools, view.access) == ("", "", (), ("0.0.0.0/0",))


def test_pools_with_their_ranges_and_troubles() -> None:
    (pool,) = read_cluster_view({"status": "RUNNING", "nodePools": [POOL]}).pools
    assert (pool.type, pool.spot, pool.min, pool.max, pool.size) == ("g2-standard-8", True, 1, 4, None)
    assert pool.taints == (("b", "", "NO_EXECUTE"),) and pool.issue == "sold out; UNAVAILABLE"
    (pool,) = read_cluster_view({"nodePools": [{**POOL, "autoscaling": {"totalMaxNodeCount": 4}}]}).pools
    assert pool.max == 0, "a range that is off is none"


def test_networks_are_those_that_are_enforced() -> None:
    limits = {"enabled": True, "cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]}
    assert read_cluster_view({"masterAuthorizedNetworksConfig": limits}).access == ("192.0.2.0/24",)
    assert read_cluster_view({"masterAuthorizedNetworksConfig": {**limits, "enabled": False}}).access == ("0.0.0.0/0",)
