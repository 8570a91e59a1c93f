"""A cluster that was made from here is looked for where it was made: another account or region would call it gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.cli.main import enter
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.same_place import check_same_place
from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import load_spec, save_spec
from longboat.core.errors import Refused
from longboat.engines.shared.home import Home
from tests.clouds.azure.simulated_aks import SimulatedAks
from tests.clouds.azure.simulated_azure import SUBSCRIPTION
from tests.clouds.gcp.simulated_gke import SimulatedGke
from tests.clusters.cloud.azure.conftest import azure as simulated_azure
from tests.clusters.cloud.gcp.conftest import google as simulated_google

__all__ = ["simulated_azure", "simulated_google"]
Text = pytest.CaptureFixture[str]
COMMANDS = (
    *(["status"], ["up", "--dry-run"], ["up"], ["down", "--yes"], ["down", "--yes", "--purge-data"]),
    *(["kubeconfig"], ["kubeconfig", "--print"]),
)


def read(folder: Path, text: str) -> ClusterSpec:
    (folder / "cluster.yaml").write_text(text)
    return read_cluster(folder / "cluster.yaml")


AWS = "name: lab\nkind: aws\nregion: us-east-1\npools: [{name: cpu, type: m5.large}]\n"


def test_the_first_time_the_account_is_written_down(home: Path, tmp_path: Path) -> None:
    spec = check_same_place(read(tmp_path, AWS), "111", Home())
    assert load_spec("lab", Home()) is None, "who only looks has made nothing"
    save_spec(spec, Home())
    known = load_spec("lab", Home())
    assert known is not None and known.cloud is not None and known.cloud.account == "111"
    assert check_same_place(read(tmp_path, AWS), "111", Home()) == spec


def test_a_subscription_is_the_same_in_capitals(home: Path, tmp_path: Path) -> None:
    text = "name: lab\nkind: azure\nregion: westeurope\npools: [{name: a, type: Standard_D4s_v5}]\n"
    save_spec(check_same_place(read(tmp_path, text), "0a1b-ff", Home()), Home())
    assert check_same_place(read(tmp_path, text), "0A1B-FF", Home()).cloud is not None


@pytest.mark.parametrize(
    ("text", "account", "message"),
    [
        (AWS, "222", "lab was made in the account 111, and these credentials are of 222"),
        (AWS.replace("us-east-1", "us-east-2"), "111", "lab was made in us-east-1, and the file says us-east-2"),
        ("name: lab\nkind: gcp\nregion: us-east1\npools: [{name: a, type: e2-standard-4}]\n", "111", "of the kind"),
    ],
)
def test_another_place_is_told(text: str, account: str, message: str, home: Path, tmp_path: Path) -> None:
    save_spec(check_same_place(read(tmp_path, AWS), "111", Home()), Home())
    with pytest.raises(Refused, match=message):
        check_same_place(read(tmp_path, text), account, Home())


def test_what_an_older_version_wrote_names_no_account(home: Path, tmp_path: Path) -> None:
    save_spec(read(tmp_path, AWS), Home())
    assert check_same_place(read(tmp_path, AWS), "111", Home()).cloud is not None


def refused(command: list[str], message: str, capfd: Text) -> None:
    capfd.readouterr()
    assert enter(["cluster", *command]) == 203, command
    captured = capfd.readouterr()
    assert message in captured.err and "hint:" in captured.err and captured.out == "", captured.err


@pytest.mark.clouds
def test_another_subscription_does_not_call_it_gone(
    capfd: Text, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    azure: SimulatedAks = request.getfixturevalue("simulated_azure")
    assert enter(["cluster", "up"]) == 0
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "22222222-2222-3333-4444-555555555555")
    for command in COMMANDS:
        refused(command, f"lab was made in the subscription {SUBSCRIPTION}", capfd)
        assert azure.group is not None and load_spec("lab", Home()) is not None
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID")
    assert enter(["cluster", "down", "--yes"]) == 0 and azure.group is None
    assert "lab is gone; nothing" in capfd.readouterr().err
    assert enter(["cluster", "down", "--yes"]) == 0
    assert f"lab is not there, in the subscription {SUBSCRIPTION}; nothing" in capfd.readouterr().err


@pytest.mark.clouds
def test_another_project_or_region_does_not_call_it_gone(
    capfd: Text, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    google: SimulatedGke = request.getfixturevalue("simulated_google")
    assert enter(["cluster", "up"]) == 0
    with monkeypatch.context() as patch:
        patch.setenv("GOOGLE_CLOUD_PROJECT", "lab-2")
        for command in COMMANDS:
            refused(command, "lab was made in the project lab-1, and these credentials are of lab-2", capfd)
    text = Path("cluster.yaml").read_text()
    Path("cluster.yaml").write_text(text.replace("us-central1", "us-east1"))
    for command in COMMANDS:
        refused(command, "lab was made in us-central1, and the file says us-east1", capfd)
    assert google.cluster is not None
    assert enter(["cluster", "down", "lab", "--yes"]) == 0 and google.cluster is None, "by its name"
    Path("cluster.yaml").write_text(text)
    capfd.readouterr()
    assert enter(["cluster", "down", "--yes"]) == 0
    assert "lab is not there, in the project lab-1; nothing" in capfd.readouterr().err


def test_another_account_of_aws(aws: AwsSession, capfd: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    """ministack takes twelve digits as the key of that account. Nothing is made: `up` ends at a name that is taken."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "111111111111")
    Path("cluster.yaml").write_text(AWS)
    save_spec(check_same_place(read_cluster("cluster.yaml"), "111111111111", Home()), Home())
    assert enter(["cluster", "status"]) == 202
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "222222222222")
    for command in COMMANDS:
        refused(command, "made in the account 111111111111, and these credentials are of 222222222222", capfd)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "111111111111")
    capfd.readouterr()
    assert enter(["cluster", "down", "--yes"]) == 0 and load_spec("lab", Home()) is None
    assert "lab is not there, in the account 111111111111; nothing" in capfd.readouterr().err
