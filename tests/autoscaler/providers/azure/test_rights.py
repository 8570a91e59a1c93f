"""The autoscaler's roles on Azure: enough for the provider, and every action is needed.

The simulated Azure denies every request whose action no assigned role has in that place.
"""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.azure.provider import AzureProvider
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.clusters.cloud.azure.permissions import autoscaler_roles, look_role, machines_role
from tests.clouds.azure.simulated_azure import GROUP, SUBSCRIPTION, SimulatedAzure
from tests.clouds.azure.simulated_azure import NODES as NODE_GROUP

ROOT = f"/subscriptions/{SUBSCRIPTION}"


def scopes(*left_out: str) -> list[tuple[str, tuple[str, ...]]]:
    cluster = f"{ROOT}/resourceGroups/{GROUP}/providers/Microsoft.ContainerService/managedClusters/lab"
    machines = tuple(each for each in machines_role("lab").actions if each not in left_out)
    look = tuple(each for each in look_role("lab").actions if each not in left_out)
    return [(f"{ROOT}/resourceGroups/{NODE_GROUP}", machines), (cluster, machines), (ROOT, look)]


def scale(provider: AzureProvider, simulated: SimulatedAzure) -> None:
    """Everything that the provider does."""
    (pool,) = provider.discover().pools
    provider.grow(pool, MachineRequest(token="a1", count=2))
    provider.shrink(pool, [machine.id for machine in provider.list([pool]).machines], ["a1"])
    provider.list([pool])
    simulated.keeps_disks = True
    provider.grow(pool, MachineRequest(token="a2", count=1))
    machines = [machine.id for machine in provider.list([pool]).machines]
    provider.shrink(pool, machines)
    provider.list([pool])
    provider.shrink(pool, machines)
    (each,) = simulated.sets.values()
    each.refusal = "stockout", 0, True
    try:
        provider.grow(pool, MachineRequest(token="a3", count=1))
    except ProviderError as error:
        if error.kind != "stockout":
            raise


# Asked by Azure itself for what a scale set is linked to; of the look at an operation the provider can do without.
UNSEEN = {
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
}


def test_the_autoscalers_roles_are_enough(azure: SimulatedAzure) -> None:
    azure.add_pool("gpu", zone="1")
    azure.assignments = scopes()
    scale(azure.provider(), azure)
    known = {action for role in autoscaler_roles() for action in role.actions}
    assert azure.denied == [] and azure.used == known - UNSEEN


@pytest.mark.parametrize("action", sorted({action for role in autoscaler_roles() for action in role.actions} - UNSEEN))
def test_every_right_of_the_autoscaler_is_needed(action: str, azure: SimulatedAzure) -> None:
    azure.add_pool("gpu", zone="1")
    azure.assignments = scopes(action)
    try:
        scale(azure.provider(), azure)
    except ProviderError as error:
        assert error.kind == "auth" and action in error.message
    assert azure.denied[0] == action


def test_it_touches_nothing_of_another_group(azure: SimulatedAzure) -> None:
    azure.add_pool("gpu", zone="1")
    azure.assignments = [(scope.replace(NODE_GROUP, "elsewhere"), actions) for scope, actions in scopes()]
    with pytest.raises(ProviderError) as caught:
        azure.provider().discover()
    assert caught.value.kind == "auth"
