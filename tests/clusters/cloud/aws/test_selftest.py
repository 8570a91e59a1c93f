"""The selftest of AWS: its steps as data, and against ministack, a server that plays AWS without machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.cli.main import enter
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws.observe import see_leftovers
from longboat.clusters.cloud.aws.selftest import CLEANING, cluster_text, steps
from longboat.clusters.cluster_file import read_cluster


def selftest(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    capfd.readouterr()
    code = enter(["cluster", "selftest", "--cloud", "aws", *args])
    captured = capfd.readouterr()
    return code, captured.out + captured.err


def test_its_cluster_files_are_right(tmp_path: Path) -> None:
    for with_gpu in (False, True):
        for image in (None, "registry.example.org/longboat:1"):
            (tmp_path / "cluster.yaml").write_text(cluster_text("lab", "eu-west-1", with_gpu=with_gpu, image=image))
            cloud = read_cluster(tmp_path / "cluster.yaml").cloud
            assert cloud is not None and cloud.autoscaler is (image is not None)
            assert any(pool.gpus for pool in cloud.pools) is with_gpu


def test_it_ends_with_the_cleaning() -> None:
    names = [step.name for step in steps("lab", "f", with_gpu=True)]
    assert names[0] == "plan" and names[-1] == CLEANING and "gpu" in names
    assert "gpu" not in [step.name for step in steps("lab", "f", with_gpu=False)]


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


def test_what_is_refused(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = selftest(capfd, "--only", "up,dwn", "--yes", "--folder", str(tmp_path))
    assert code == 201 and "--only dwn: no such step" in text
    code, text = selftest(capfd, "--folder", str(tmp_path))
    assert code == 201 and "a selftest costs money" in text
    assert not list(tmp_path.glob("selftest-*"))
