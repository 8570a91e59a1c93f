"""The printed roles are enough for `up`, `status` and `down` and for the autoscaler, and every action is needed.

The simulated Azure denies every request, and every resource of a deployment, whose action no assigned role has.
"""

from __future__ import annotations

import json

import pytest

from longboat.clusters.addons.addon import PoolsText
from longboat.clusters.cloud.azure.permissions import autoscaler_roles, cluster_role
from tests.clouds.azure.simulated_aks import NODES, ROOT, SimulatedAks
from tests.clouds.azure.simulated_azure import SUBSCRIPTION
from tests.clusters.cloud.azure.test_up_down import Text, change, say

pytestmark = pytest.mark.clouds
IDS = "/subscriptions/s/resourceGroups/g/providers/"
PARTS = (
    "count: 2}",
    f"count: 2, placement_group: {IDS}Microsoft.Compute/proximityPlacementGroups/p, "
    f"reservation: {IDS}Microsoft.Compute/capacityReservationGroups/r}}",
)
NETWORK = ("region: ", f"network: {{subnet: {IDS}Microsoft.Network/virtualNetworks/v/subnets/s}}\nregion: ")
AUTOSCALER = ("addons: []", "addons: [autoscaler]\nimage: registry.example.org/longboat:1")
ACTIONS = cluster_role("lab").actions


def go_through(capfd: Text) -> tuple[int, str]:
    """Everything that the role is for."""
    for words in (("up",), ("token", "lab", "--cloud", "azure"), ("status",)):
        code, text = say(capfd, *words)
        if code:
            return code, text
    more = "\n- {name: more, type: Standard_D4s_v5}"
    change("\n- {name: gpu", f"{more}\n- {{name: gpu")
    code, text = say(capfd, "up")
    if code:
        return code, text
    change(more, "")
    code, text = say(capfd, "up")
    return (code, text) if code else say(capfd, "down", "lab", "--yes")


def test_the_role_is_enough(azure: SimulatedAks, capfd: Text, installed: list[PoolsText]) -> None:
    for each in (AUTOSCALER, PARTS, NETWORK):
        change(*each)
    azure.assignments = [(ROOT, ACTIONS), ("/subscriptions/s", ACTIONS)]
    code, text = go_through(capfd)
    assert code == 0, text
    assert azure.denied == [] and azure.used == set(ACTIONS)
    assert azure.group is None and azure.resources == {}


def test_without_an_autoscaler_it_has_no_rights_over_rights(azure: SimulatedAks, capfd: Text) -> None:
    fewer = cluster_role("lab", autoscaler=False, parts=False).actions
    assert not [action for action in fewer if "Authorization" in action or "Identity" in action]
    azure.assignments = [(ROOT, fewer)]
    code, text = go_through(capfd)
    assert code == 0, text


@pytest.mark.parametrize("action", ACTIONS)
def test_a_right_that_is_missing_is_named(
    action: str, azure: SimulatedAks, capfd: Text, installed: list[PoolsText]
) -> None:
    for each in (AUTOSCALER, PARTS, NETWORK):
        change(*each)
    fewer = tuple(each for each in ACTIONS if each != action)
    azure.assignments = [(ROOT, fewer), ("/subscriptions/s", fewer)]
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
