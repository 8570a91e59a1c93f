"""Add-ons before `down`: what cannot be purged stops it before a host is changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longboat.cli.cluster.addons import cloud_pools, remove_from
from longboat.cli.cluster.down import finish
from longboat.cli.input.pools import checked_pools
from longboat.clusters.cloud.autoscaler_identity import aws_install
from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.down import DownResult, KeptVolumes
from longboat.clusters.hosts.connection import CommandResult
from longboat.clusters.plan.kubeadm import ADMIN
from longboat.clusters.spec import VolumeStorage
from longboat.core.errors import EngineError
from longboat.engines.shared.home import Home
from tests.clusters.cloud.aws.files import AUTOSCALED
from tests.clusters.worlds import bare, cluster


class SilentHost:
    name = "cp-0"

    def run(self, script: str, **_: Any) -> CommandResult:
        return CommandResult(code=1, stdout="", stderr="error: the disk is broken")


def session(**facts: Any) -> Any:
    spec = cluster(workers=0, addons=("storage",))
    seen = {"cp-0": bare("cp-0", **facts)} if facts else {}
    return SimpleNamespace(spec=spec, hosts={"cp-0": SilentHost()}, facts=seen)


def test_a_purge_that_fails_ends_down_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    ours = session(journal_cluster="lab", files=((ADMIN, "x"),))
    ours.spec = cluster(workers=0, name="lab", addons=("storage",))
    with pytest.raises(EngineError, match="not purged, and no host was changed: .*the disk is broken") as error:
        remove_from(ours, purge=True)
    assert "without --purge-data the cluster goes and volumes stay" in str(error.value.hint)
    assert remove_from(ours, purge=False) == ()
    assert "warning: add-ons are not removed before the cluster" in capsys.readouterr().err


def test_a_control_plane_that_does_not_answer_cannot_say_which_volumes_are_its_own() -> None:
    with pytest.raises(EngineError, match="cp-0 does not answer"):
        remove_from(session(), purge=True)
    assert remove_from(session(), purge=False) == ()


def test_a_cluster_that_is_gone_already_has_nothing_to_purge() -> None:
    assert remove_from(session(journal_cluster=""), purge=True) == ()


def test_volumes_that_stay_are_named_with_their_host_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    spec = cluster(workers=0, addons=("storage",), storage=VolumeStorage(path="/srv"))
    session: Any = SimpleNamespace(
        spec=spec, facts={"cp-0": None}, unreachable={}, home=Home(tmp_path), logs=tmp_path
    )  # fmt: skip
    assert finish(session, DownResult(kept=(KeptVolumes(host="cp-0", names=("pvc-1", "pvc-2")),)), ()) == 0
    told = capsys.readouterr().err
    assert "longboat: kept: volumes of users in /srv/longboat-volumes on cp-0: pvc-1, pvc-2\n" in told
    assert "hint: --purge-data deletes the volumes of the cluster that goes" in told


def test_the_autoscaler_of_a_cluster_in_a_cloud_finds_its_pools_there(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(AUTOSCALED)
    cloud = read_cluster(tmp_path / "cluster.yaml").cloud
    assert cloud is not None and cloud.autoscaler
    pools = cloud_pools("aws", aws_install("lab", cloud.region))
    (tmp_path / "pools.yaml").write_text(pools.text)
    assert checked_pools(str(tmp_path / "pools.yaml")) == (pools.text, False)
    assert "cluster: lab" in pools.text and "region: us-east-1" in pools.text
