"""Add-ons before `down`: what cannot be purged stops it before a host is changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from longboat.cli.cluster.addons import remove_from
from longboat.clusters.hosts.connection import CommandResult
from longboat.clusters.plan.kubeadm import ADMIN
from longboat.core.errors import EngineError
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
