"""Which nodes an upgrade still has to change, in which order, and which versions can be reached at all."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.packages import KUBERNETES_PACKAGES
from longboat.clusters.plan.upgrade_plan import UpgradePlan, kubeadm_upgrade, kubelet_upgrade, plan_upgrade
from longboat.clusters.spec import ClusterSpec, Versions
from longboat.core.errors import Refused
from tests.clusters.worlds import KEYS, bare, cluster

OLD, NEW = "1.35.8", "1.36.4"
NODE = ["kubeadm", "node", "drain", "containerd", "kubelet", "ready"]
FIRST = ["kubeadm", "apply", *NODE[2:]]


def member(name: str, version: str = OLD, **fields: Any) -> HostFacts:
    known: dict[str, Any] = {
        "journal_cluster": "lab",
        "packages": tuple((package, f"{version}-1.1") for package in KUBERNETES_PACKAGES),
        "programs": (("containerd", "2.4.2"), ("kubelet", version)),
        "done": (("kubernetes", "member"),),
    }
    return bare(name, **{**known, **fields})


def node(name: str, version: str = OLD, **fields: Any) -> NodeView:
    return NodeView(name=name, address="", pods="", is_ready=True, version=f"v{version}", **fields)


def plan(spec: ClusterSpec, *hosts: HostFacts, nodes: list[NodeView] | None = None) -> UpgradePlan:
    facts = {host.name: host for host in hosts or [member(host.name) for host in spec.hosts]}
    return plan_upgrade(spec, facts, [node(name) for name in facts] if nodes is None else nodes, KEYS)


def steps(upgrade: UpgradePlan) -> dict[str, list[str]]:
    return {host.host: [step.name for step in host.steps] for host in upgrade.nodes}


def test_control_planes_come_first_and_the_first_of_them_decides() -> None:
    spec = cluster(planes=3, workers=1, endpoint="10.0.0.9")
    spec = msgspec.structs.replace(spec, hosts=(spec.hosts[3], *spec.hosts[:3]))  # a worker stands first in the file
    upgrade = plan(spec)
    assert steps(upgrade) == {"cp-0": FIRST, "cp-1": NODE, "cp-2": NODE, "w-0": NODE}
    assert list(steps(upgrade)) == ["cp-0", "cp-1", "cp-2", "w-0"]
    assert (upgrade.before, upgrade.version) == (OLD, NEW)


def test_repositories_and_images_are_there_before_any_node_changes() -> None:
    spec = cluster(workers=1)
    source = msgspec.structs.replace(spec.source, images="/x/images.tar")
    prepared = plan(msgspec.structs.replace(spec, source=source)).prepare
    assert [f"{step.host} {step.name}" for step in prepared.steps] == [
        "cp-0 repository", "cp-0 images", "w-0 repository", "w-0 images",
    ]  # fmt: skip


def test_nodes_that_have_the_version_are_left_alone() -> None:
    spec = cluster(workers=1)
    upgrade = plan(spec, member("cp-0", NEW), member("w-0"), nodes=[node("cp-0", NEW), node("w-0")])
    assert steps(upgrade) == {"w-0": NODE}
    assert [step.host for step in upgrade.prepare.steps] == ["w-0"]
    both = [member("cp-0", NEW), member("w-0", NEW)]
    assert plan(spec, *both, nodes=[node("cp-0", NEW), node("w-0", NEW)]).is_empty


def cut_off(names: str, **fields: Any) -> HostFacts:
    """A host whose packages `names` are new already."""
    versions = {name: NEW if name in names.split() else OLD for name in KUBERNETES_PACKAGES}
    return member("cp-0", packages=tuple((name, f"{version}-1.1") for name, version in versions.items()), **fields)


def test_what_was_cut_off_goes_on_where_it_was() -> None:
    spec = cluster(workers=0)
    applied = kubeadm_upgrade(spec, spec.hosts[0], member("cp-0")).key
    done = (("kubernetes", "member"), ("apply", applied))
    cases = [
        (cut_off("kubeadm"), node("cp-0"), FIRST[1:]),
        (cut_off("kubeadm", done=done), node("cp-0"), FIRST[2:]),
        (cut_off("kubeadm", done=done), node("cp-0", upgrading=NEW), FIRST[2:]),
        (cut_off("kubeadm kubectl", done=done), node("cp-0", upgrading=NEW), FIRST[2:]),
        (cut_off("kubeadm kubelet kubectl", done=done), node("cp-0", upgrading=NEW), FIRST[2:]),
        (cut_off("kubeadm kubelet kubectl", done=done), node("cp-0", NEW, upgrading=NEW), ["ready"]),
        (cut_off("kubeadm kubelet kubectl", done=done), node("cp-0", NEW), None),
    ]  # fmt: skip
    for facts, view, expected in cases:
        assert steps(plan(spec, facts, nodes=[view])).get("cp-0") == expected, (facts.packages, view)


def test_an_earlier_upgrade_does_not_count_for_a_later_one() -> None:
    spec = cluster(workers=0)
    before = kubeadm_upgrade(msgspec.structs.replace(spec, versions=Versions(kubernetes=OLD)), spec.hosts[0], bare("x"))
    facts = cut_off("kubeadm", done=(("kubernetes", "member"), ("apply", before.key)))
    assert steps(plan(spec, facts))["cp-0"][0] == "apply"


@pytest.mark.parametrize(
    ("has", "message", "hint"),
    [
        ("1.34.2", "cp-0 has Kubernetes 1.34.2: 1.36.4 is more than one minor version away", "--to 1.35 comes first"),
        ("1.37.0", "cp-0 has Kubernetes 1.37.0: there is no way down to 1.36.4", "--to 1.37.0"),
        ("1.36.10", "there is no way down", "--to 1.36.10"),
    ],
)
def test_one_minor_version_at_a_time_and_never_down(has: str, message: str, hint: str) -> None:
    with pytest.raises(Refused) as refused:
        plan(cluster(workers=0), member("cp-0", has))
    assert message in refused.value.message and hint in str(refused.value.hint)


def test_a_newer_patch_is_an_upgrade_too() -> None:
    assert steps(plan(cluster(workers=0), member("cp-0", "1.36.3"), nodes=[node("cp-0", "1.36.3")])) == {"cp-0": FIRST}


def test_hosts_that_are_not_part_of_it_yet_are_for_up() -> None:
    assert list(steps(plan(cluster(workers=1), member("cp-0"), bare("w-0")))) == ["cp-0"]
    with pytest.raises(Refused, match="none of its hosts is part of a cluster yet"):
        plan(cluster(workers=1), bare("cp-0"), bare("w-0"))


APT = """#!/bin/sh
echo "apt-get $*" >> ROOT/calls
case "$*" in *" -s "*) cat ROOT/planned ;; esac
"""


@pytest.mark.parametrize(
    ("planned", "code"),
    [
        ("Inst kubelet [1.35.8-1.1] (1.36.4-1.1 x)\nInst cri-tools [1.35] (1.36 x)\nInst libnew (1.0 x)\n", 0),
        ("Inst kubelet [1.35.8-1.1] (1.36.4-1.1 x)\nInst users-own [1.35] (1.36 x)\n", 1),
    ],
)
def test_only_packages_that_are_ours_are_replaced(tmp_path: Path, planned: str, code: int) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in {"apt-get": APT, "dpkg": "#!/bin/sh\n", "apt-mark": APT.replace("apt-get", "apt-mark")}.items():
        (tmp_path / "bin" / name).write_text(text.replace("ROOT", str(tmp_path)))
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "bin" / "systemctl").symlink_to("dpkg")
    recorded = tmp_path / "journal" / "undo" / "0004-packages" / "packages"
    recorded.parent.mkdir(parents=True)
    recorded.write_text("kubelet\nkubeadm\nkubectl\ncri-tools\n")
    (tmp_path / "planned").write_text(planned)
    script = PRELUDE + kubelet_upgrade(cluster().hosts[0], member("cp-0"), NEW).script
    script = script.replace("/var/lib/longboat", str(tmp_path / "journal"))
    script = script.replace(":$PATH\n", f":$PATH\nPATH={tmp_path}/bin:$PATH\n", 1)
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    calls = (tmp_path / "calls").read_text()
    if code:
        assert "users-own was here before" in ended.stderr and "apt-mark" not in calls
    else:
        assert recorded.read_text().split()[-1] == "libnew"  # `down` removes it too
        assert "apt-mark hold kubelet" in calls and "install" in calls.split("apt-mark")[0]
