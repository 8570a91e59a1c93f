"""Profiles add up."""

from __future__ import annotations

import pytest

from testbed import profiles
from testbed.errors import TestbedError


def test_names_add_up() -> None:
    assert profiles.combine([]).profiles == ("api",)
    both = profiles.combine(["gpu", "two-nodes"])
    assert both.profiles == ("api", "pods", "two-nodes", "gpu")
    assert (both.real_nodes, both.simulates) == (2, True)
    assert {"etcd", "containerd", "kwok"} <= set(both.targets)


def test_an_api_alone_needs_no_node_programs() -> None:
    assert set(profiles.combine(["api"]).targets) == {"tools", "etcd", "kubernetes"}


def test_an_older_kubernetes_comes_beside_the_newer_after_which_it_counts() -> None:
    targets = profiles.combine(["pods", "older"]).targets
    assert targets.index("kubernetes") < targets.index("kubernetes-older")
    assert "kubernetes-older" not in profiles.combine(["pods"]).targets


def test_gpus_of_a_real_node_need_one_and_nvidia_s_programs() -> None:
    parts = profiles.combine(["nvidia"])
    assert parts.profiles == ("api", "pods", "nvidia") and parts.real_nodes == 1
    assert {"nvidia-device-plugin", "nvidia-container-toolkit"} <= set(parts.targets)
    assert not {"nvidia-device-plugin"} & set(profiles.combine(["pods"]).targets), "made only where it is asked for"


def test_a_fleet_asks_for_the_gpu_profile() -> None:
    parts = profiles.combine([], ["100:h100x8", "4:cpu"])
    assert parts.profiles == ("api", "gpu")
    assert [(group.count, group.shape.name) for group in parts.groups] == [(100, "h100x8"), (4, "cpu")]


def test_tests_start_with_no_simulated_nodes() -> None:
    parts = profiles.with_empty_fleet(profiles.combine(["api"]))
    assert parts.simulates and not parts.groups and parts.profiles == ("api", "gpu")


def test_unknown_profile_is_named() -> None:
    with pytest.raises(TestbedError, match="no profile nosuch"):
        profiles.combine(["nosuch"])
