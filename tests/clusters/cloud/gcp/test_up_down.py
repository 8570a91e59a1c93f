"""`longboat cluster up|status|down` of a cluster on Google Cloud, against a simulated GKE."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from longboat.cli.main import enter
from longboat.clusters.cloud.gcp import gke
from tests.clouds.gcp.simulated_gke import SimulatedGke
from tests.clouds.simulated_rest import stumbling

pytestmark = pytest.mark.clouds
Text = pytest.CaptureFixture[str]


def change(old: str, new: str) -> None:
    path = Path("cluster.yaml")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_cluster_is_made_shown_changed_and_taken_down(google: SimulatedGke, capfd: Text) -> None:
    assert enter(["cluster", "up", "--dry-run"]) == 0
    assert "lab: the cluster is made" in capfd.readouterr().out and google.cluster is None
    assert enter(["cluster", "up"]) == 0
    words = capfd.readouterr().err
    assert "cpu  node pool  done" in words and "USD per day" in words and "lab: as its file says" in words
    assert enter(["cluster", "status"]) == 0
    assert "RUNNING, Kubernetes 1.35.3-gke.100" in capfd.readouterr().out
    assert enter(["cluster", "up"]) == 0
    assert "lab: nothing to do" in capfd.readouterr().err
    change("count: 2}", "count: 3}\n- {name: more, type: e2-standard-4}")
    change("max: 4", "max: 6")
    assert enter(["cluster", "status"]) == 1
    shown = capfd.readouterr().out
    assert "cpu: it has 2 machines, the file has 3" in shown and "more: there is no such node pool" in shown
    assert enter(["cluster", "up", "-o", "json"]) == 0
    assert {json.loads(line)["resource"] for line in capfd.readouterr().out.splitlines()} == {
        "lab",
        "cpu",
        "gpu",
        "more",
    }
    assert enter(["cluster", "status"]) == 0
    change("\n- {name: more, type: e2-standard-4}", "")
    assert enter(["cluster", "up"]) == 0
    assert google.cluster is not None and [pool["name"] for pool in google.cluster["nodePools"]] == ["cpu", "gpu"]
    assert google.cluster["nodePools"][1]["autoscaling"]["totalMaxNodeCount"] == 6
    capfd.readouterr()
    assert enter(["cluster", "down", "lab", "--yes"]) == 0
    assert google.cluster is None and "nothing else that is known to be its own is left" in capfd.readouterr().err
    assert not yaml.safe_load(Path("kubeconfig").read_text()).get("contexts")


def test_an_interrupted_up_goes_on(google: SimulatedGke, capfd: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the request was sent and before its end; and a second one at the same time follows the same operation."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gke.GkeCluster, "follow", killed)
        assert enter(["cluster", "up"]) == 130
    assert google.cluster is not None and google.cluster["status"] == "PROVISIONING"
    assert enter(["cluster", "up"]) == 0
    assert len(google.operations) == 1 and google.cluster["status"] == "RUNNING"
    with monkeypatch.context() as patch:
        patch.setattr(gke.GkeCluster, "follow", killed)
        assert enter(["cluster", "down", "lab", "--yes"]) == 130
    capfd.readouterr()
    assert enter(["cluster", "up"]) == 205
    assert "lab is being taken down" in capfd.readouterr().err
    assert enter(["cluster", "down", "lab", "--yes"]) == 0
    assert google.cluster is None


@pytest.mark.parametrize(
    ("change_of", "message"),
    [
        (("region: us-central1", 'version: "1.22"\nregion: us-central1'), "GKE has no Kubernetes 1.22 in us-central1"),
        (("e2-standard-4", "e2-standard-8"), "us-central1-b has no e2-standard-8"),
        (("region: us-central1", "region: us-centrall1"), "Google Cloud has no region us-centrall1: "),
        (("count: 2", "count: 30"), "CPUS: 120 wanted, 100 left"),
    ],
)
def test_what_can_be_known_beforehand(
    google: SimulatedGke, capfd: Text, change_of: tuple[str, str], message: str
) -> None:
    change(*change_of)
    assert enter(["cluster", "up"]) == 203
    assert message in capfd.readouterr().err and google.cluster is None


def test_a_cluster_of_somebody_else_is_left_alone(google: SimulatedGke, capfd: Text) -> None:
    google.cluster = {"name": "lab", "status": "RUNNING", "nodePools": [], "initialClusterVersion": "1.35"}
    for command in (["up"], ["down", "--yes"]):
        assert enter(["cluster", *command]) == 203
        assert "Longboat" in capfd.readouterr().err
    assert google.cluster["status"] == "RUNNING"


def test_a_cluster_that_could_not_be_made(google: SimulatedGke, capfd: Text) -> None:
    google.fails = "Insufficient regional quota to satisfy request"
    assert enter(["cluster", "up"]) == 205
    assert "GKE could not do it: Insufficient regional quota" in capfd.readouterr().err
    assert enter(["cluster", "up"]) == 205
    assert "lab was not made: Insufficient regional quota" in capfd.readouterr().err
    assert enter(["cluster", "down", "lab", "--yes"]) == 0
    assert enter(["cluster", "up"]) == 0


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "does not accept your credentials"),
        (403, "does not let you"),
        (429, "asks for fewer requests"),
        (500, "Google Cloud refused to"),
    ],
)
def test_one_message_for_what_google_refuses(google: SimulatedGke, capfd: Text, status: int, message: str) -> None:
    google.hiccups = [("POST", "/clusters", status, "before")]
    assert enter(["cluster", "up"]) == 205
    words = capfd.readouterr().err
    assert message in words and "Traceback" not in words


def test_what_google_does_not_do_now_is_told_in_its_words(google: SimulatedGke, capfd: Text) -> None:
    """As while Google itself works on the cluster's network: a conflict with nothing of ours."""
    google.hiccups = [("POST", "/clusters", 409, "before")] * 20
    assert enter(["cluster", "up"]) == 205
    assert "lab does not become as its file says: an error that passes" in capfd.readouterr().err
    google.hiccups = []
    assert enter(["cluster", "up"]) == 0
    google.hiccups = [("DELETE", "/clusters/lab", 409, "before")] * 20
    assert enter(["cluster", "down", "lab", "--yes"]) == 205
    assert "lab is still there: an error that passes" in capfd.readouterr().err
    google.hiccups = []
    assert enter(["cluster", "down", "lab", "--yes"]) == 0 and google.cluster is None


def test_a_token_for_kubectl(google: SimulatedGke, capfd: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    assert enter(["cluster", "up"]) == 0
    user = yaml.safe_load(Path("kubeconfig").read_text())["users"][0]["user"]["exec"]
    assert user["args"][-5:] == ["cluster", "token", "lab", "--cloud", "gcp"] and google.token not in json.dumps(user)
    capfd.readouterr()
    assert enter(["cluster", "token", "lab", "--cloud", "gcp"]) == 0
    credential = json.loads(capfd.readouterr().out)
    assert credential["status"]["token"] == google.token and credential["kind"] == "ExecCredential"
    assert enter(["cluster", "token", "lab"]) == 201
    assert "--region is missing" in capfd.readouterr().err
    assert enter(["cluster", "kubeconfig", "lab", "--print"]) == 0
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
    assert enter(["cluster", "token", "lab", "--cloud", "gcp"]) == 205
    assert "no credentials of Google Cloud" in capfd.readouterr().err


def test_every_second_question_finds_a_busy_cloud(
    google: SimulatedGke, capfd: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` takes ten minutes of questions: one that is not answered ends nothing. Orders are sent once."""
    stumbling(monkeypatch, google)
    for words in (["up", "--dry-run"], ["up"], ["status"], ["up"], ["down", "lab", "--yes"]):
        assert enter(["cluster", *words]) == 0, capfd.readouterr().err
    assert google.cluster is None
