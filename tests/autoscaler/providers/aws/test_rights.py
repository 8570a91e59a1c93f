"""The policy that `longboat cluster permissions --autoscaler` prints: enough for the provider, and every right is used.

The server, by an addition of ours, denies every action that is not in the policy; resources and conditions are AWS's
own to prove.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.clusters.cloud.aws.permissions import autoscaler_policy
from tests.clouds.aws.moto_cluster import REGION, ZONES, MotoCluster


def allow(moto: MotoCluster, actions: list[str]) -> None:
    moto.control("rights", actions)


@pytest.fixture
def groups(moto: MotoCluster) -> Iterator[MotoCluster]:
    moto.node_group("gpu")
    moto.node_group("spot", "g5.xlarge", capacityType="SPOT")
    moto.own_group("own", "g5.xlarge")
    yield moto
    moto.control("rights", None)


def work(moto: MotoCluster) -> None:
    """Everything that the provider does."""
    provider = moto.provider()
    for pool in provider.discover().pools:
        token = secrets.token_hex(4)
        provider.grow(pool, MachineRequest(token=token, count=1, zone=ZONES[0]))
        machines = [machine.id for machine in provider.list([pool]).machines]
        provider.shrink(pool, machines, [token])


ACTIONS = [action for statement in autoscaler_policy()["Statement"] for action in statement["Action"]]


def test_the_policy_is_enough(groups: MotoCluster) -> None:
    allow(groups, ACTIONS)
    work(groups)


def test_every_right_is_needed(groups: MotoCluster) -> None:
    for action in ACTIONS:
        allow(groups, [each for each in ACTIONS if each != action])
        with pytest.raises(ProviderError) as caught:
            work(groups)
        assert caught.value.kind == "auth" and action in caught.value.message


def test_it_changes_only_what_carries_the_tag_of_its_cluster() -> None:
    for statement in autoscaler_policy("lab", REGION)["Statement"]:
        reads = all(action.split(":")[1].startswith("Describe") for action in statement["Action"])
        tag = {"aws:ResourceTag/kubernetes.io/cluster/lab": "false"}
        assert reads or statement["Condition"]["Null"] == tag
        assert not any("*" in action for action in statement["Action"])
