"""The printed roles are enough for `up`, `status` and `down` and for the autoscaler, and every action is needed.

The simulated Azure denies every request, and every resource of a deployment, whose action no assigned role has.
"""

from __future__ import annotations

import json

import pytest

from longboat.autoscaler.providers.azure.provider import AzureProvider
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.cli.cluster import addons
from longboat.clusters.addons.addon import PoolsText
from longboat.clusters.cloud.azure.permissions import autoscaler_roles, cluster_role, look_role, machines_role
from tests.autoscaler.providers.conftest import azure as machines_azure  # noqa: F401  # fixture
from tests.clouds.azure.simulated_aks import NODES, ROOT, SimulatedAks
from tests.clouds.azure.simulated_azure import GROUP, NODES as NODE_GROUP, SUBSCRIPTION, SimulatedAzure
from tests.clusters.cloud.azure.test_up_down import Text, azure, change, say  # noqa: F401  # fixture

pytestmark = pytest.mark.clouds
AUTOSCALER = ("addons: []", "addons: [autoscaler]\nimage: registry.example.org/longboat:1")
ACTIONS = cluster_role("lab").actions


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[PoolsText]:
    """No API server answers at the simulated AKS: what would be installed there."""
    given: list[PoolsText] = []
    monkeypatch.setattr(
        addons, "install_into", lambda spec, _context, _output, who: given.append(addons.cloud_pools(spec.kind, who))
    )
    return given


def go_through(capfd: Text) -> tuple[int, str]:
    """Everything that the role is for."""
    for words in (("up",), ("token", "lab", "--cloud", "azure"), ("status",)):
        code, text = say(capfd, *words)
        if code:
            return code, text
    more = "\n- {name: more, type: Standard_D4s_v5}"
    change("count: 2}", f"count: 2}}{more}")
    code, text = say(capfd, "up")
    if code:
        return code, text
    change(more, "")
    code, text = say(capfd, "up")
    return (code, text) if code else say(capfd, "down", "lab", "--yes")


def test_the_role_is_enough(azure: SimulatedAks, capfd: Text, installed: list[PoolsText]) -> None:
    change(*AUTOSCALER)
    azure.assignments = [(ROOT, ACTIONS)]
    code, text = go_through(capfd)
    assert code == 0, text
    assert azure.denied == [] and azure.used == set(ACTIONS)
    assert azure.group is None and azure.resources == {}


def test_without_an_autoscaler_it_has_no_rights_over_rights(azure: SimulatedAks, capfd: Text) -> None:
    fewer = cluster_role("lab", autoscaler=False).actions
    assert not [action for action in fewer if "Authorization" in action or "Identity" in action]
    azure.assignments = [(ROOT, fewer)]
    code, text = go_through(capfd)
    assert code == 0, text


@pytest.mark.parametrize("action", ACTIONS)
def test_a_right_that_is_missing_is_named(
    action: str, azure: SimulatedAks, capfd: Text, installed: list[PoolsText]
) -> None:
    change(*AUTOSCALER)
    azure.assignments = [(ROOT, tuple(each for each in ACTIONS if each != action))]
    code, text = go_through(capfd)
    assert code == 205 and "Azure does not let you" in text and action in text, text
    assert "hint: longboat cluster permissions" in text and azure.denied[0] == action


def test_up_gives_the_autoscaler_its_rights_and_no_more(
    azure: SimulatedAks, capfd: Text, installed: list[PoolsText]
) -> None:
    change(*AUTOSCALER)
    assert say(capfd, "up")[0] == 0 and say(capfd, "status")[0] == 0
    (pools,) = installed
    client = pools.annotations["azure.workload.identity/client-id"]
    assert client == "client-of-longboat-lab-autoscaler" and pools.labels == {"azure.workload.identity/use": "true"}
    assert "resource_group: longboat-lab" in pools.text and SUBSCRIPTION in pools.text
    machines, look = (role.actions for role in autoscaler_roles("lab"))
    aks = f"{ROOT}/resourceGroups/longboat-lab/providers/Microsoft.ContainerService/managedClusters/lab"
    rights = [(scope, tuple(sorted(actions))) for scope, actions in azure.rights_of(client)]
    wanted = [(NODES, machines), (aks, machines), (ROOT, look)]
    assert sorted(rights) == sorted((scope, tuple(sorted(actions))) for scope, actions in wanted)
    (federated,) = (each for path, each in azure.resources.items() if "federatedIdentityCredentials" in path)
    subject = "system:serviceaccount:longboat-system:longboat-autoscaler"
    assert federated["properties"]["subject"] == subject and federated["properties"]["issuer"].startswith("https://")
    assert azure.cluster is not None
    pool = azure.cluster["properties"]["agentPoolProfiles"][1]
    assert pool["tags"] == {"min": "0", "max": "4"} and "enableAutoScaling" not in pool
    assert say(capfd, "up")[0] == 0 and azure.deployed == 1
    assert say(capfd, "down", "lab", "--yes")[0] == 0 and azure.resources == {}


def test_an_interrupted_down_leaves_no_roles(azure: SimulatedAks, capfd: Text, installed: list[PoolsText]) -> None:
    change(*AUTOSCALER)
    assert say(capfd, "up")[0] == 0
    azure.hiccups = [("DELETE", "/roleDefinitions/", 500, "before")]
    assert say(capfd, "down", "lab", "--yes")[0] == 205 and azure.resources != {}
    assert say(capfd, "down", "lab", "--yes")[0] == 0 and azure.resources == {}


def test_what_the_autoscaler_needs_in_the_file(azure: SimulatedAks, capfd: Text) -> None:
    change("addons: []", "addons: [autoscaler]")
    code, text = say(capfd, "check")
    assert code == 201 and "autoscaler needs an image" in text and "longboat[azure]" in text


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


def test_the_autoscalers_roles_are_enough(machines_azure: SimulatedAzure) -> None:  # noqa: F811
    machines_azure.add_pool("gpu", zone="1")
    machines_azure.assignments = scopes()
    scale(machines_azure.provider(), machines_azure)
    known = {action for role in autoscaler_roles() for action in role.actions}
    assert machines_azure.denied == [] and machines_azure.used == known - UNSEEN


@pytest.mark.parametrize(
    "action", sorted({action for role in autoscaler_roles() for action in role.actions} - UNSEEN)
)
def test_every_right_of_the_autoscaler_is_needed(action: str, machines_azure: SimulatedAzure) -> None:  # noqa: F811
    machines_azure.add_pool("gpu", zone="1")
    machines_azure.assignments = scopes(action)
    try:
        scale(machines_azure.provider(), machines_azure)
    except ProviderError as error:
        assert error.kind == "auth" and action in error.message
    assert machines_azure.denied[0] == action


def test_it_touches_nothing_of_another_group(machines_azure: SimulatedAzure) -> None:  # noqa: F811
    machines_azure.add_pool("gpu", zone="1")
    machines_azure.assignments = [(scope.replace(NODE_GROUP, "elsewhere"), actions) for scope, actions in scopes()]
    with pytest.raises(ProviderError) as caught:
        machines_azure.provider().discover()
    assert caught.value.kind == "auth"


def test_the_command_prints_it(azure: SimulatedAks, capfd: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", SUBSCRIPTION)
    for words, names in (
        (["permissions", "cluster.yaml"], ["longboat-lab"]),
        (["permissions", "--cloud", "azure"], ["longboat"]),
        (["permissions", "--autoscaler", "cluster.yaml"], [role.name for role in autoscaler_roles("lab")]),
    ):
        code, text = say(capfd, *words)
        shown = json.loads(text)
        roles = shown if isinstance(shown, list) else [shown]
        assert code == 0 and [role["Name"] for role in roles] == names
        for role in roles:
            assert role["AssignableScopes"] == [f"/subscriptions/{SUBSCRIPTION}"] and not role["NotActions"]
            assert not any("*" in action for action in role["Actions"])
    code, text = say(capfd, "permissions", "cluster.yaml", "--cloud", "gcp")
    assert code == 201 and "lab is on azure" in text
