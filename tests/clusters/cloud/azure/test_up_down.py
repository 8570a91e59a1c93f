"""`longboat cluster up|status|down` of a cluster on Azure, against a simulated Azure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from longboat.cli.main import enter
from longboat.clouds.rest import Body
from longboat.clusters.cloud.aws.stack import Listen
from longboat.clusters.cloud.azure import resource_group
from longboat.clusters.spec_store import load_spec
from longboat.core.errors import EngineError
from longboat.engines.shared.home import Home
from tests.clouds.azure.simulated_aks import SimulatedAks
from tests.clouds.simulated_rest import stumbling

pytestmark = pytest.mark.clouds
Text = pytest.CaptureFixture[str]


def change(old: str, new: str) -> None:
    path = Path("cluster.yaml")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def say(capfd: Text, *words: str) -> tuple[int, str]:
    capfd.readouterr()
    code = enter(["cluster", *words])
    captured = capfd.readouterr()
    return code, captured.out + captured.err


def test_a_cluster_is_made_shown_changed_and_taken_down(azure: SimulatedAks, capfd: Text) -> None:
    code, words = say(capfd, "up", "--dry-run")
    assert code == 0 and "lab: the resource group is made" in words and azure.group is None
    code, words = say(capfd, "up")
    assert code == 0 and "lab  ContainerService/managedClusters  done" in words and "lab: as its file says" in words
    assert azure.group is not None and azure.group["tags"]["longboat-cluster"] == "lab"
    code, words = say(capfd, "status")
    assert code == 0 and "Succeeded, Kubernetes 1.35.2" in words
    code, words = say(capfd, "up")
    assert code == 0 and "lab: nothing to do" in words and azure.deployed == 1
    change("count: 2}", "count: 3}\n- {name: more, type: Standard_D4s_v5}")
    code, words = say(capfd, "status")
    assert code == 1 and "system: count: 2, the file has 3" in words and "more: AKS has no such pool" in words
    assert azure.cluster is not None
    azure.cluster["properties"]["agentPoolProfiles"][1]["count"] = 2  # AKS's autoscaler has grown it
    assert say(capfd, "up")[0] == 0 and say(capfd, "status")[0] == 0
    sizes = {pool["name"]: pool["count"] for pool in azure.cluster["properties"]["agentPoolProfiles"]}
    assert sizes == {"system": 3, "more": 1, "gpu": 2}
    change("\n- {name: more, type: Standard_D4s_v5}", "")
    code, words = say(capfd, "up", "-o", "json")
    assert code == 0 and '"resource":"more"' in words
    assert [pool["name"] for pool in azure.cluster["properties"]["agentPoolProfiles"]] == ["system", "gpu"]
    code, words = say(capfd, "down", "lab", "--yes")
    assert code == 0 and "nothing with its tag is left" in words and azure.group is None
    assert not yaml.safe_load(Path("kubeconfig").read_text()).get("contexts")


def test_tags_that_others_gave_the_group_stay(
    azure: SimulatedAks, capfd: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policies of a company add some, when the group is made and later."""
    real = resource_group.ClusterGroup.follow

    def follow(group: resource_group.ClusterGroup, listen: Listen) -> None:
        assert azure.group is not None and "longboat-template" not in azure.group["tags"]
        azure.group["tags"] |= {"owner": "it", "Team": "vision"}
        azure.group["tags"].pop("team", None)
        real(group, listen)

    monkeypatch.setattr(resource_group.ClusterGroup, "follow", follow)
    assert say(capfd, "up")[0] == 0 and azure.group is not None
    first = dict(azure.group["tags"])
    assert first == {"owner": "it", "team": "vision", "longboat-cluster": "lab"} | {
        "longboat-template": first["longboat-template"]
    }
    azure.group["tags"]["cost"] = "42"
    change("{team: vision}", "{team: sound}")
    change("count: 2}", "count: 3}")
    assert say(capfd, "up")[0] == 0
    second = dict(azure.group["tags"])
    assert (second["owner"], second["cost"], second["team"]) == ("it", "42", "sound") and "Team" not in second
    assert second["longboat-template"] != first["longboat-template"]


def test_an_interrupted_up_goes_on(azure: SimulatedAks, capfd: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resource_group.ClusterGroup, "follow", killed)
        assert say(capfd, "up")[0] == 130
    code, words = say(capfd, "up", "--dry-run")
    assert code == 0 and "a deployment is in progress" in words
    assert say(capfd, "up")[0] == 0 and say(capfd, "status")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(resource_group.ClusterGroup, "_until_gone", killed)
        assert say(capfd, "down", "lab", "--yes")[0] == 130
    code, words = say(capfd, "up")
    assert code == 205 and "lab is being taken down" in words
    assert say(capfd, "down", "lab", "--yes")[0] == 0 and azure.group is None


def test_a_lock_is_told_at_once(azure: SimulatedAks, capfd: Text) -> None:
    assert say(capfd, "up")[0] == 0
    azure.is_locked = True
    code, words = say(capfd, "down", "lab", "--yes")
    assert code == 203 and "a lock keeps you from that" in words and "az lock list" in words
    azure.is_locked = False
    assert say(capfd, "down", "lab", "--yes")[0] == 0 and azure.group is None


def test_a_deletion_that_azure_gives_up_is_not_waited_for_for_ever(azure: SimulatedAks, capfd: Text) -> None:
    change("max: 4", "max: 5")
    assert say(capfd, "up")[0] == 0
    azure.keeps = "the subnet is in use by vm-7"
    code, words = say(capfd, "down", "lab", "--yes")
    assert code == 205 and "did not delete the resource group longboat-lab: the subnet is in use by vm-7" in words
    gpu = next(line for line in Path("cluster.yaml").read_text().splitlines() if "name: gpu" in line)
    change(gpu + "\n", "")
    code, words = say(capfd, "up")
    assert code == 205 and "Azure did not delete the pool gpu: its state is Succeeded" in words
    azure.keeps = ""
    assert say(capfd, "up")[0] == 0 and say(capfd, "down", "lab", "--yes")[0] == 0


def test_a_group_that_is_going_already_is_followed(
    azure: SimulatedAks, capfd: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert say(capfd, "up")[0] == 0
    real = resource_group.ClusterGroup._order

    def second(group: resource_group.ClusterGroup, path: str, version: str, words: str) -> str:
        real(group, path, version, words)
        azure.hiccups = [("DELETE", "/longboat-lab", 409, "before")]
        with pytest.raises(EngineError):  # a refusal that Azure does not name so
            real(group, path, version, words)
        return ""

    monkeypatch.setattr(resource_group.ClusterGroup, "_order", second)
    assert say(capfd, "down", "lab", "--yes")[0] == 0 and azure.group is None


def test_who_comes_second_follows_and_gets_what_his_file_says(
    azure: SimulatedAks, capfd: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's request, of another file, comes between the look and the deployment."""
    real = resource_group.ClusterGroup.deploy
    answers: list[bool] = []

    def second(
        group: resource_group.ClusterGroup, template: Body, values: Body, region: str, tags: dict[str, str]
    ) -> bool:
        if not answers:
            assert real(group, template, {**values, "systemCount": 1}, region, tags)
        answers.append(real(group, template, values, region, tags))
        return answers[-1]

    monkeypatch.setattr(resource_group.ClusterGroup, "deploy", second)
    assert say(capfd, "up")[0] == 0 and answers == [False, True] and azure.deployed == 2
    assert azure.cluster is not None
    assert azure.cluster["properties"]["agentPoolProfiles"][0]["count"] == 2


def test_what_claims_store_would_be_lost(azure: SimulatedAks, capfd: Text) -> None:
    assert say(capfd, "up")[0] == 0
    azure.claims, azure.snapshots, azure.accounts, azure.disks = ["pvc-1"], ["snapshot-1"], ["f0a1"], ["by-hand"]
    code, words = say(capfd, "down", "lab", "--yes")
    stored = "by-hand, pvc-1, snapshot snapshot-1, file shares in f0a1"
    assert code == 203 and f"AKS deletes what claims store with the cluster: {stored}" in words
    assert azure.group is not None
    assert say(capfd, "down", "lab", "--yes", "--purge-data")[0] == 0


def test_a_context_of_another_tool_does_not_hold_up_down(azure: SimulatedAks, capfd: Text) -> None:
    """`az aks get-credentials` calls its context like the cluster, and overwrites ours when asked."""
    assert say(capfd, "up")[0] == 0
    body = yaml.safe_load(Path("kubeconfig").read_text())
    for context in body["contexts"]:
        del context["context"]["extensions"]
    Path("kubeconfig").write_text(yaml.safe_dump(body))
    code, words = say(capfd, "down", "lab", "--yes")
    assert code == 0 and azure.group is None and "lab is gone; nothing with its tag is left" in words
    assert "warning: the context lab stays in the kubeconfig: the context lab was not made by Longboat" in words
    assert "hint: kubectl config delete-context lab" in words and load_spec("lab", Home()) is None
    assert yaml.safe_load(Path("kubeconfig").read_text()) == body


def test_what_others_put_into_the_group_would_go_with_it(azure: SimulatedAks, capfd: Text) -> None:
    assert say(capfd, "up")[0] == 0
    tags = {"longboat-cluster": "lab-2"}
    azure.others = [{"id": "x", "name": "datasets", "type": "Microsoft.Storage/storageAccounts", "tags": tags}]
    code, words = say(capfd, "down", "lab", "--yes")
    stored = "datasets (Storage/storageAccounts)"
    assert code == 203 and f"longboat-lab goes with what others have put into it: {stored}" in words
    assert azure.group is not None and azure.cluster is not None
    azure.cluster["tags"] = {"team": "vision"}  # a policy of theirs has taken ours away
    assert say(capfd, "down", "lab", "--yes", "--purge-data")[0] == 0 and azure.group is None


def test_down_goes_on_where_the_group_of_the_nodes_is_gone_already(azure: SimulatedAks, capfd: Text) -> None:
    """It goes before the cluster does; and one that could not be made never had it."""
    assert say(capfd, "up")[0] == 0
    azure.has_nodes = False
    code, words = say(capfd, "down", "lab", "--yes")
    assert code == 0 and azure.group is None, words


def test_what_is_left_is_told(azure: SimulatedAks, capfd: Text) -> None:
    assert say(capfd, "up")[0] == 0
    azure.left = ["/subscriptions/s/resourceGroups/x/providers/Microsoft.Network/publicIPAddresses/a"]
    code, words = say(capfd, "down", "lab", "--yes")
    assert code == 205 and "publicIPAddresses/a" in words


@pytest.mark.parametrize(
    ("change_of", "message"),
    [
        (("region: westeurope", 'version: "1.22"\nregion: westeurope'), "AKS has no Kubernetes 1.22 in westeurope"),
        (("Standard_D4s_v5", "Standard_D16s_v5"), "westeurope does not offer Standard_D16s_v5"),
        (("Standard_D4s_v5", "Standard_D8s_v5"), "does not let this subscription have Standard_D8s_v5"),
        (('zones: ["1"]', 'zones: ["3"]'), "Standard_NC4as_T4_v3 is not in zone 3"),
        (("count: 2", "count: 3"), "cores: 12 processors wanted, 10 left"),
    ],
)
def test_what_can_be_known_beforehand(
    azure: SimulatedAks, capfd: Text, change_of: tuple[str, str], message: str
) -> None:
    change(*change_of)
    code, words = say(capfd, "up")
    assert code == 203 and message in words and azure.group is None


def test_a_group_of_somebody_else_is_left_alone(azure: SimulatedAks, capfd: Text) -> None:
    azure.group = {"name": "longboat-lab", "properties": {"provisioningState": "Succeeded"}, "tags": {}}
    for command in (["up"], ["down", "--yes"]):
        code, words = say(capfd, *command)
        assert code == 203 and "resource group" in words
    assert azure.deployed == 0 and azure.group is not None


def test_a_deployment_that_failed_is_told_and_tried_again(azure: SimulatedAks, capfd: Text) -> None:
    azure.fails = "Insufficient vcpu quota"
    code, words = say(capfd, "up")
    assert code == 205 and "Azure could not do it: At least one failed; Insufficient vcpu quota" in words
    assert say(capfd, "status")[0] == 1
    assert say(capfd, "up")[0] == 0 and say(capfd, "status")[0] == 0


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "does not accept your credentials"),
        (403, "Azure does not let you deploy"),
        (429, "asks for fewer requests"),
        (500, "Azure refused to deploy"),
    ],
)
def test_one_message_for_what_azure_refuses(azure: SimulatedAks, capfd: Text, status: int, message: str) -> None:
    azure.hiccups = [("PUT", "/deployments/", status, "before")]
    code, words = say(capfd, "up")
    assert code == 205 and message in words and "Traceback" not in words


@pytest.mark.parametrize(
    ("user", "key"),
    [
        ({"token": "secret-of-aks"}, "token"),
        ({"client-certificate-data": "Yw==", "client-key-data": "a2V5"}, "clientKeyData"),
    ],
)
def test_credentials_for_kubectl(azure: SimulatedAks, capfd: Text, user: dict[str, str], key: str) -> None:
    azure.user = user
    assert say(capfd, "up")[0] == 0
    text = Path("kubeconfig").read_text()
    assert "secret-of-aks" not in text and "a2V5" not in text
    plugin = yaml.safe_load(text)["users"][0]["user"]["exec"]
    assert plugin["args"][-5:] == ["cluster", "token", "lab", "--cloud", "azure"]
    code, words = say(capfd, "token", "lab", "--cloud", "azure")
    assert code == 0 and json.loads(words)["status"][key] in ("secret-of-aks", "key")
    azure.user = {"exec": {"command": "kubelogin"}}
    code, words = say(capfd, "token", "lab", "--cloud", "azure")
    assert code == 205 and "Entra ID" in words


def test_every_second_question_finds_a_busy_cloud(
    azure: SimulatedAks, capfd: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` takes ten minutes of questions: one that is not answered ends nothing. Orders are sent once."""
    stumbling(monkeypatch, azure)
    for words in (["up", "--dry-run"], ["up"], ["status"], ["up"], ["down", "lab", "--yes"]):
        assert enter(["cluster", *words]) == 0, capfd.readouterr().err
    assert azure.group is None
