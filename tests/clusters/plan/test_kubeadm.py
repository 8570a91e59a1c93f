"""Init and join as shell, with a kubeadm that only writes down its calls: a member of a cluster is never reset."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from longboat.clusters.plan import kubeadm
from longboat.clusters.plan.journal_shell import JOURNAL, PRELUDE
from longboat.clusters.plan.steps import Step
from tests.clusters.worlds import cluster

CONTROL, WORKER = cluster().hosts[:2]
INIT, JOIN = kubeadm.init(CONTROL), kubeadm.join(WORKER, "cp-0/init")


class SimulatedHost:
    """A folder in place of a host's root, and a kubeadm that fails as often as it is told to."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, root / "calls"
        for folder in ("journal/undo", "journal/done", "kubernetes/manifests", "run", "bin", "logind"):
            (root / folder).mkdir(parents=True)
        program = root / "bin" / "kubeadm"
        program.write_text(
            f'#!/bin/sh\necho "$1" >> {self.calls}\n[ "$1" != reset ] || rm -rf {root}/kubernetes/*\n'
            f"if [ -e {root}/fails ]; then rm {root}/fails; exit 1; fi\n"
        )
        program.chmod(0o755)

    def run(self, step: Step) -> subprocess.CompletedProcess[str]:
        text = PRELUDE + step.script
        places = {JOURNAL: "journal", "/etc/kubernetes": "kubernetes", "/run/": "run/", "/etc/systemd": "logind"}
        for place, name in places.items():
            text = text.replace(place, f"{self.root}/{name}")
        text = text.replace(":$PATH\n", f":$PATH\nPATH={self.root}/bin:$PATH\n", 1)
        return subprocess.run(["sh", "-c", text], input="token", capture_output=True, text=True, check=False)

    def called(self) -> list[str]:
        return self.calls.read_text().split() if self.calls.exists() else []

    def has(self, *names: str) -> None:
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text("x")


@pytest.fixture
def host(tmp_path: Path) -> SimulatedHost:
    return SimulatedHost(tmp_path)


@pytest.mark.parametrize(("step", "verb"), [(INIT, "init"), (JOIN, "join")])
def test_a_bare_host_becomes_a_member(host: SimulatedHost, step: Step, verb: str) -> None:
    assert host.run(step).returncode == 0
    assert host.called() == [verb]
    assert (host.root / "journal/done/kubernetes").read_text() == "member\n"
    assert not (host.root / "run/longboat-kubeadm.yaml").exists()  # it holds a token


@pytest.mark.parametrize("step", [INIT, JOIN])
def test_a_member_is_never_reset(host: SimulatedHost, step: Step) -> None:
    host.has("journal/done/kubernetes", "kubernetes/kubelet.conf", "kubernetes/manifests/kube-apiserver.yaml")
    assert host.run(step).returncode == 0
    assert host.called() == []


@pytest.mark.parametrize(("step", "verb"), [(INIT, "init"), (JOIN, "join")])
@pytest.mark.parametrize("left", ["kubernetes/kubelet.conf", "kubernetes/manifests/kube-apiserver.yaml"])
def test_what_was_cut_off_is_done_anew(host: SimulatedHost, step: Step, verb: str, left: str) -> None:
    host.has(left, "journal/joining")
    assert host.run(step).returncode == 0
    assert host.called() == ["reset", verb]
    assert not (host.root / "journal/joining").exists()


@pytest.mark.parametrize("step", [INIT, JOIN])
@pytest.mark.parametrize("left", ["kubernetes/kubelet.conf", "kubernetes/manifests/kube-apiserver.yaml"])
def test_somebody_elses_cluster_is_never_reset(host: SimulatedHost, step: Step, left: str) -> None:
    host.has(left)
    assert "not ours" in host.run(step).stderr
    assert host.called() == []


@pytest.mark.parametrize("step", [INIT, JOIN])
def test_a_member_whose_kubelet_has_lost_its_file_is_not_reset(host: SimulatedHost, step: Step) -> None:
    host.has("journal/done/kubernetes", "kubernetes/manifests/kube-apiserver.yaml")
    assert "is missing" in host.run(step).stderr
    assert host.called() == []


def test_an_init_that_fails_is_tried_once_more(host: SimulatedHost) -> None:
    host.has("fails")
    assert host.run(INIT).returncode == 0
    assert host.called() == ["init", "reset", "init"]


def test_a_join_that_fails_fails(host: SimulatedHost) -> None:
    host.has("fails")
    assert host.run(JOIN).returncode == 1
    assert not (host.root / "journal/done/kubernetes").exists()


@pytest.mark.parametrize("step", [INIT, JOIN])
def test_the_way_back_is_written_down_first(host: SimulatedHost, step: Step) -> None:
    host.has("fails")
    host.run(step)
    assert any(path.name.endswith("-kubernetes") for path in (host.root / "journal/undo").iterdir())
