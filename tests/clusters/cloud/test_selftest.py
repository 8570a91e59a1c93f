"""The selftests of clouds: their steps as data, and against servers without machines: ministack plays AWS, ours Azure
and Google Cloud.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.cli.main import enter
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws.observe import see_leftovers
from longboat.clusters.cloud.selftest import CLEANING, CLOUDS, cluster_text, steps
from longboat.clusters.cluster_file import read_cluster
from tests.clouds.azure.simulated_aks import SimulatedAks
from tests.clouds.gcp.simulated_gke import SimulatedGke
from tests.clusters.cloud.azure.conftest import azure as simulated_azure
from tests.clusters.cloud.gcp.conftest import google as simulated_google
from tests.docs.test_examples import parse_command

__all__ = ["simulated_azure", "simulated_google"]


def selftest(capfd: pytest.CaptureFixture[str], *args: str, cloud: str = "aws") -> tuple[int, str]:
    capfd.readouterr()
    code = enter(["cluster", "selftest", "--cloud", cloud, *args])
    captured = capfd.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize("kind", CLOUDS)
def test_its_cluster_files_are_right(kind: str, tmp_path: Path) -> None:
    for with_gpu in (False, True):
        for image in (None, "registry.example.org/longboat:1"):
            (tmp_path / "cluster.yaml").write_text(
                cluster_text(kind, "lab", CLOUDS[kind].region, with_gpu=with_gpu, image=image)
            )
            cloud = read_cluster(tmp_path / "cluster.yaml").cloud
            assert cloud is not None and cloud.autoscaler is (image is not None)
            assert any(pool.gpus for pool in cloud.pools) is with_gpu


@pytest.mark.parametrize("kind", CLOUDS)
def test_it_ends_with_the_cleaning(kind: str) -> None:
    names = [step.name for step in steps(kind, "lab", "f", with_gpu=True)]
    for step in steps(kind, "lab", "f", with_gpu=True):
        parse_command([*step.command])
    assert names[0] == "plan" and names[-1] == CLEANING and "gpu" in names
    assert "gpu" not in [step.name for step in steps(kind, "lab", "f", with_gpu=False)]


def test_a_step_that_fails_ends_it_and_nothing_is_left(
    aws: AwsSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = selftest(capfd, "--yes", "--only", "up,run,gang,down", "--folder", str(tmp_path / "bad"))
    assert code == 205 and "up       ok" in text and "run      FAILED" in text and "error: run failed" in text, text
    assert "gang" not in text and "down     ok" in text
    (folder,) = (tmp_path / "bad").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["cluster.yaml", "down.log", "run.log", "up.log"]
    assert see_leftovers(aws, folder.name) == []


@pytest.mark.soak
def test_steps_that_work(aws: AwsSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = selftest(capfd, "--yes", "--only", "plan,up,status,down", "--folder", str(tmp_path / "good"))
    assert code == 0 and "all 4 steps worked" in text, text


@pytest.mark.clouds
def test_on_a_simulated_azure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    azure: SimulatedAks = request.getfixturevalue("simulated_azure")
    azure.takes_any_name = True
    image = ("--image", "registry.example.org/longboat:1")
    code, text = selftest(
        capfd, "--yes", "--only", "plan,run,down", *image, "--folder", str(tmp_path / "good"), cloud="azure"
    )
    assert code == 205 and "plan     ok" in text and "run      FAILED" in text and "down     ok" in text, text
    code, text = selftest(capfd, "--yes", "--only", "up,status,down", "--folder", str(tmp_path / "made"), cloud="azure")
    assert code == 0 and "all 3 steps worked" in text and azure.group is None and azure.deployed == 1, text


@pytest.mark.clouds
def test_on_a_simulated_google_cloud(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    google: SimulatedGke = request.getfixturevalue("simulated_google")
    folder = str(tmp_path / "good")
    code, text = selftest(capfd, "--yes", "--only", "plan,up,status,down", "--folder", folder, cloud="gcp")
    assert code == 0 and "all 4 steps worked" in text and google.cluster is None, text


def test_what_is_refused(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = selftest(capfd, "--only", "up,dwn", "--yes", "--folder", str(tmp_path))
    assert code == 201 and "--only dwn: no such step" in text
    code, text = selftest(capfd, "--folder", str(tmp_path))
    assert code == 201 and "a selftest costs money" in text
    assert not list(tmp_path.glob("selftest-*"))
