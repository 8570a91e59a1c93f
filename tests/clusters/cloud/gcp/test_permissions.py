"""The printed roles are enough for `up`, `status` and `down` and for the autoscaler, and every permission is needed.

The simulated Google Cloud denies every request whose permission was not granted. Kubernetes' own objects, which GKE
judges by the same roles, are not asked about here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.cli.main import enter
from longboat.clusters.addons.addon import PoolsText
from longboat.clusters.cloud.gcp.permissions import _OBJECTS, autoscaler_role, cluster_role
from tests.clouds.gcp.simulated_gke import SimulatedGke
from tests.clouds.gcp.simulated_google import PROJECT
from tests.clusters.cloud.conftest import GKE_ACCOUNT
from tests.clusters.cloud.gcp.test_leftovers import keep_data
from tests.clusters.cloud.gcp.test_up_down import Text, change

pytestmark = pytest.mark.clouds
AUTOSCALER = ("addons: []", "addons: [autoscaler]\nimage: registry.example.org/longboat:1")
KUBERNETES = {f"container.{kind}.{verb}" for kind, verbs in _OBJECTS.items() for verb in verbs}
GKE_ONLY = {"container.clusters.getCredentials"}  # GKE shows the certificate of the API server to who has it
PERMISSIONS = sorted({*cluster_role("lab").permissions} - KUBERNETES - GKE_ONLY)
ROLE = f"projects/{PROJECT}/roles/longboat_lab.autoscaler"


def say(capfd: Text, *words: str) -> tuple[int, str]:
    capfd.readouterr()
    code = enter(["cluster", *words])
    captured = capfd.readouterr()
    return code, captured.out + captured.err


def go_through(simulated: SimulatedGke, capfd: Text) -> tuple[int, str]:
    """Everything that the role is for."""
    more = "\n- {name: more, type: e2-standard-4}"
    changes = [("", ""), ("count: 2}", f"count: 3}}{more}"), (more, ""), ("max: 4", "max: 6")]
    simulated.claims = ["pvc-1"]
    keep_data(simulated)
    simulated.roles.pop(ROLE, None)
    for old, new in changes:
        if old:
            change(old, new)
        if ROLE in simulated.roles:
            simulated.roles[ROLE]["includedPermissions"] = ["of.an.older.version"]
        code, text = say(capfd, "up")
        if code:
            return code, text
    for words in (("status",), ("down", "lab", "--yes", "--purge-data"), ("up",), ("down", "lab", "--yes")):
        code, text = say(capfd, *words)
        if code:
            return code, text
    return 0, ""


def test_the_role_is_enough(google: SimulatedGke, capfd: Text, installed: list[PoolsText]) -> None:
    change(*AUTOSCALER)
    google.granted = set(PERMISSIONS)
    code, text = go_through(google, capfd)
    assert code == 0, text
    assert google.denied == [] and google.used == set(PERMISSIONS)
    assert [each["role"] for each in google.policy["bindings"]] == ["roles/owner"] and google.roles[ROLE]["deleted"]


def test_without_an_autoscaler_it_has_no_rights_over_rights(google: SimulatedGke, capfd: Text) -> None:
    fewer = set(cluster_role("lab", autoscaler=False).permissions)
    assert not [each for each in fewer if each.startswith(("iam.roles", "resourcemanager"))]
    google.granted = fewer
    code, text = go_through(google, capfd)
    assert code == 0, text
    assert google.roles == {}


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_permission_that_is_missing_is_named(
    permission: str, google: SimulatedGke, capfd: Text, installed: list[PoolsText]
) -> None:
    change(*AUTOSCALER)
    google.granted = set(PERMISSIONS) - {permission}
    code, text = go_through(google, capfd)
    assert code == 205 and "Google Cloud does not let you" in text and permission in text, text
    assert "hint: longboat cluster permissions" in text and google.denied[0] == permission


def test_up_gives_the_autoscaler_its_rights_and_no_more(
    google: SimulatedGke, capfd: Text, installed: list[PoolsText]
) -> None:
    change(*AUTOSCALER)
    google.policy_changes_by_others = 2
    assert say(capfd, "up")[0] == 0 and say(capfd, "status")[0] == 0
    assert google.rights_of(PROJECT, GKE_ACCOUNT) == set(autoscaler_role("lab").permissions)
    assert google.policy["bindings"][0] == {"role": "roles/owner", "members": ["user:a@b.c"]}
    (pools,) = installed
    assert "cluster: lab" in pools.text and f"project: {PROJECT}" in pools.text and "region: us-central1" in pools.text
    assert google.cluster is not None
    assert google.cluster["workloadIdentityConfig"] == {"workloadPool": f"{PROJECT}.svc.id.goog"}
    _, gpu = google.cluster["nodePools"]
    assert gpu["config"]["resourceLabels"] == {"longboat-min": "0", "longboat-max": "4"} and "autoscaling" not in gpu
    code, text = say(capfd, "up")
    assert code == 0 and "nothing to do" in text


def test_rights_are_those_of_this_clusters_account_alone(
    google: SimulatedGke, capfd: Text, installed: list[PoolsText]
) -> None:
    """Not of one that has its name in another cluster; nor of the former one, after it was made anew."""
    change(*AUTOSCALER)
    name = "principal://iam.googleapis.com/projects/1/x/subject/ns/longboat-system/sa/longboat-autoscaler"
    google.policy["bindings"].append({"role": ROLE, "members": [name, "user:somebody@example.org"]})
    assert say(capfd, "up")[0] == 0
    (members,) = [each["members"] for each in google.policy["bindings"] if each["role"] == ROLE]
    assert len(members) == 1 and members[0].endswith(f"/kubernetes.serviceaccount.uid/{GKE_ACCOUNT}")


def test_a_cluster_of_the_same_name_in_another_region_keeps_its_rights(
    google: SimulatedGke, capfd: Text, installed: list[PoolsText]
) -> None:
    change(*AUTOSCALER)
    google.elsewhere = [{"name": "lab", "location": "europe-west4", "id": "fedcba98" + "0" * 32}]
    assert say(capfd, "up")[0] == 0
    (binding,) = [each for each in google.policy["bindings"] if each["role"] == ROLE]
    theirs = binding["members"][0].replace(GKE_ACCOUNT, "11111111-2222-3333-4444-555555555555")
    binding["members"] = [theirs]  # as its own `up` leaves it
    assert say(capfd, "up")[0] == 0
    rights = set(autoscaler_role("lab").permissions)
    assert google.rights_of(PROJECT, theirs.rpartition("/")[2]) == google.rights_of(PROJECT, GKE_ACCOUNT) == rights
    assert say(capfd, "down", "lab", "--yes")[0] == 0
    assert google.rights_of(PROJECT, theirs.rpartition("/")[2]) == rights and not google.roles[ROLE].get("deleted")


def test_a_cluster_that_had_none_gets_one_and_gives_it_back(
    google: SimulatedGke, capfd: Text, installed: list[PoolsText]
) -> None:
    assert say(capfd, "up")[0] == 0 and google.cluster is not None and "autoscaling" in google.cluster["nodePools"][1]
    change(*AUTOSCALER)
    code, text = say(capfd, "status")
    assert code == 1 and "nobody for Google" in text and "gpu: GKE's own autoscaler is True" in text
    assert say(capfd, "up")[0] == 0 and say(capfd, "status")[0] == 0
    assert not google.cluster["nodePools"][1]["autoscaling"]["enabled"]
    change(AUTOSCALER[1], AUTOSCALER[0])
    assert say(capfd, "up")[0] == 0 and say(capfd, "status")[0] == 0
    assert google.cluster["nodePools"][1]["autoscaling"]["totalMaxNodeCount"] == 4
    assert say(capfd, "down", "lab", "--yes")[0] == 0 and google.rights_of(PROJECT, GKE_ACCOUNT) == set()


def test_the_command_prints_it(google: SimulatedGke, capfd: Text) -> None:
    for words, title in (
        (["cluster.yaml"], "longboat cluster lab"),
        (["--cloud", "gcp"], "longboat cluster"),
        (["--autoscaler", "cluster.yaml"], "longboat autoscaler lab"),
    ):
        code, text = say(capfd, "permissions", *words)
        role = json.loads(text)
        assert code == 0 and role["title"] == title and not any("*" in each for each in role["includedPermissions"])
    change(*AUTOSCALER)
    assert say(capfd, "render", "-o", "made")[0] == 0
    request = json.loads(Path("made/request.json").read_text())
    assert request["cluster"]["workloadIdentityConfig"] == {"workloadPool": "$PROJECT.svc.id.goog"}


def test_no_cluster_has_a_role_of_the_id_of_anothers_autoscaler() -> None:
    """Whoever makes clusters may set the project's policy: an autoscaler with that role could take every right."""
    assert cluster_role("lab-autoscaler").id != autoscaler_role("lab").id
    assert cluster_role("autoscaler").id != autoscaler_role().id
