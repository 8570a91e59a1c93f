"""Answers of AKS about a cluster as values."""

from __future__ import annotations

from longboat.clusters.cloud.azure.aks_view import read_aks


def test_a_cluster_that_has_just_begun_has_little() -> None:
    view = read_aks({"properties": {"provisioningState": "Creating"}})
    assert (view.state, view.endpoint, view.pools, view.access) == ("Creating", "", (), ("0.0.0.0/0",))


def test_pools_and_their_ranges() -> None:
    pool = {"name": "gpu", "vmSize": "x", "count": 2, "minCount": 1, "maxCount": 4, "availabilityZones": ["2", "1"]}
    bodies = [{**pool, "enableAutoScaling": True, "scaleSetPriority": "Spot"}, {**pool, "enableAutoScaling": False}]
    ranged, fixed = read_aks({"properties": {"agentPoolProfiles": bodies}}).pools
    assert (ranged.min, ranged.max, ranged.spot, ranged.zones) == (1, 4, True, ("1", "2"))
    assert (fixed.min, fixed.max, fixed.spot, fixed.count) == (0, 0, False, 2), "a range that is off is none"
