"""`longboat cluster upgrade` as it is typed: what is refused before a host is asked, what is shown, what is written."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from longboat.cli.cluster.target import _CHOSEN
from longboat.cli.cluster.upgrade import confirm, lines, write_version
from longboat.cli.main import enter
from longboat.clusters.apply.upgrade import Patience
from longboat.clusters.plan.upgrade_plan import plan_upgrade
from longboat.core.errors import UsageError
from tests.clusters.plan.test_upgrade_plan import member, node
from tests.clusters.worlds import KEYS, cluster

SPEC = cluster(workers=1)
PLAN = plan_upgrade(SPEC, {"cp-0": member("cp-0"), "w-0": member("w-0")}, [node("cp-0"), node("w-0")], KEYS)
TRAININGS = {"w-0": ["team/mnist-0", "team/mnist-1"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text("name: lab\nhosts: [gpu-1]  # one\nversions: 1.35.8\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("", ["--to", "1.12"], "--to 1.12: not a version that is tested with the rest"),
        ("name: prod\nkind: existing\naddons: []\n", [], "prod is an existing cluster: whoever made it upgrades it"),
    ],
)
def test_what_is_refused_before_a_host_is_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], message: str
) -> None:
    if text:
        (folder / "cluster.yaml").write_text(text)
    assert enter(["cluster", "upgrade", *words]) == 201
    assert message in capsys.readouterr().err


def test_the_plan_names_every_node_and_step_and_the_trainings_in_the_way() -> None:
    shown = list(lines(SPEC, PLAN, TRAININGS))
    assert shown[0] == "lab: Kubernetes 1.35.8 -> 1.36.4"
    assert "  + apply: upgrade the control plane (kubeadm upgrade apply v1.36.4)" in shown
    assert shown.index("then one node after the other:") < len(shown) - 1 - shown[::-1].index("cp-0")
    assert shown[-1] == "    runs there now: team/mnist-0, team/mnist-1"


def test_without_a_terminal_nobody_is_asked() -> None:
    with pytest.raises(UsageError, match="asked for twice"):
        confirm(SPEC, PLAN, TRAININGS, Patience(wait_s=1, grace_s=1))


def test_the_file_says_what_is_wanted_before_anything_changes(folder: Path) -> None:
    file = folder / "cluster.yaml"
    file.chmod(0o640)
    link = folder / "link.yaml"
    link.symlink_to(file)
    with click.Context(click.Command("upgrade")) as context:
        context.meta[_CHOSEN] = {"file": "link.yaml"}
        write_version(SPEC)
    assert file.read_text() == "name: lab\nhosts: [gpu-1]  # one\nversions: 1.36.4\n"
    assert link.is_symlink() and file.stat().st_mode & 0o777 == 0o640
