"""The order of an upgrade: hosts prepared, then node by node; trainings are waited for; a failure stops. Simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clusters.apply import answers, upgrade
from longboat.clusters.apply.step_log import StepEvent
from longboat.clusters.apply.upgrade import ClusterUpgrade, Patience, UpgradeResult
from longboat.clusters.hosts.connection import CommandResult, HostUnreachable, Line
from longboat.clusters.plan.upgrade_plan import plan_upgrade
from tests.clusters.plan.test_upgrade_plan import member, node
from tests.clusters.worlds import KEYS, cluster, packed

SIGNS = {
    "jsonpath='{.spec.unschedulable}'": "cordon",
    " drain ": "drain",
    '"unschedulable": null': "uncordon",
    "get pods": "pods",
    "get nodes": "nodes",
    "upgrade apply": "apply",
    "upgrade node": "node",
    "restart kubelet": "kubelet",
    "restart containerd": "containerd",
    "NAMES='kubeadm": "kubeadm",
    "longboat.list": "repository",
}
READY = '{"type":"Ready","status":"True"}'
OLD, NEW = '{"kubeletVersion":"v1.35.8"}', '{"kubeletVersion":"v1.36.4"}'


def owner(kind: str) -> str:
    return f'[{{"kind":"{kind}","controller":true}}]'


class SimulatedHost:
    """Writes down what it was asked for. Kubelets have the new version once it was installed."""

    def __init__(self, name: str, log: list[str], breaks: str, trainings: list[str]) -> None:
        """A training called `hiccup` is an API server that does not answer once, `gone` a host that does not."""
        self.name, self.log, self.breaks, self.trainings = name, log, breaks, trainings

    def run(
        self, script: str, *, stdin: bytes | Path = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        verb = next(verb for sign, verb in SIGNS.items() if sign in script)
        target = next((name for name in ("cp-0", "w-0") if f"node {name}" in script or f"drain {name}" in script), "")
        asked = f"{target or self.name} {verb}"
        if verb not in ("nodes", "pods"):
            self.log.append(asked)
        if asked == self.breaks:
            return CommandResult(code=1, stdout="", stderr="error: broken")
        out = ""
        if verb == "nodes":
            out = "".join(
                f"{name}\t\t\t\t\t\t\t{READY}\t{NEW if f'{name} kubelet' in self.log else OLD}\n"
                for name in ("cp-0", "w-0")
            )
        if verb == "pods":
            assert '{"\\t"}' in script and '{"\\n"}' in script  # kubectl reads the escapes, and no raw ones
        if verb == "pods" and "w-0" in script and self.trainings[:1] == ["gone"]:
            self.trainings.pop(0)
            raise HostUnreachable(self.name, "no route to host")
        if verb == "pods" and "w-0" in script and self.trainings[:1] == ["hiccup"]:
            self.trainings.pop(0)
            return CommandResult(code=1, stdout="", stderr="Unable to connect to the server")
        if verb == "pods" and "w-0" in script and self.trainings:
            out = f"w-0\tteam/{self.trainings.pop(0)}\t{owner('Job')}\nw-0\tteam/web\t{owner('ReplicaSet')}\n"
        return CommandResult(code=0, stdout=packed(out) if verb in ("nodes", "pods") else out, stderr="")

    def close(self) -> None: ...


def carry_out(
    *, breaks: str = "", trainings: tuple[str, ...] = (), wait_s: float = 600.0
) -> tuple[list[str], UpgradeResult, list[StepEvent]]:  # fmt: skip
    spec = cluster(workers=1)
    facts = {host.name: member(host.name) for host in spec.hosts}
    plan = plan_upgrade(spec, facts, [node("cp-0"), node("w-0")], KEYS)
    log: list[str] = []
    left = list(trainings)
    hosts = {name: SimulatedHost(name, log, breaks, left) for name in facts}
    events: list[StepEvent] = []
    work = ClusterUpgrade(
        plan, hosts, events.append, control="cp-0", images=Path, patience=Patience(wait_s=wait_s, grace_s=1.0)
    )
    return log, work.run(), events


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "_LOOK_S", 0.0)
    monkeypatch.setattr(answers, "_LOOK_S", 0.0)


def of_node(name: str, verb: str) -> list[str]:
    return [f"{name} {step}" for step in ("kubeadm", verb, "cordon", "drain", "containerd", "kubelet", "uncordon")]


def test_the_control_plane_is_finished_before_the_worker_begins() -> None:
    log, result, _ = carry_out()
    assert sorted(log[:2]) == ["cp-0 repository", "w-0 repository"]
    assert log[2:] == of_node("cp-0", "apply") + of_node("w-0", "node")
    assert result.upgraded == ("cp-0", "w-0") and not result.failures


def test_trainings_are_waited_for_before_the_drain_and_named_once() -> None:
    log, result, events = carry_out(trainings=("mnist-0", "mnist-0", "mnist-0"))
    assert [event.text for event in events if event.state == "waiting"] == ["for team/mnist-0"]
    assert "w-0 drain" in log and not result.failures


def test_an_api_server_that_does_not_answer_for_a_moment_does_not_end_a_days_wait() -> None:
    log, result, _ = carry_out(trainings=("mnist-0", "hiccup", "gone", "mnist-0"))
    assert "w-0 drain" in log and not result.failures


def test_an_api_server_that_is_gone_for_good_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "RESTART_S", 0.0)
    log, result, _ = carry_out(trainings=("mnist-0", *("hiccup",) * 1_000_000))
    assert "w-0 drain" not in log and "Unable to connect" in result.failures[0].message


def test_with_no_patience_nobody_is_waited_for() -> None:
    _, result, events = carry_out(trainings=("mnist-0",) * 1000, wait_s=0.0)
    assert not result.failures and not [event for event in events if event.state == "waiting"]


def test_trainings_that_do_not_end_stop_the_upgrade_and_are_not_ended() -> None:
    log, result, _ = carry_out(trainings=("mnist-0",) * 1_000_000, wait_s=1e-9)
    assert "w-0 drain" not in log and result.upgraded == ("cp-0",)
    assert "team/mnist-0: still there" in result.failures[0].message


@pytest.mark.parametrize("verb", ["kubeadm", "apply", "cordon", "drain", "containerd", "kubelet", "uncordon"])
def test_a_failure_stops_before_the_next_step_and_the_next_node(verb: str) -> None:
    log, result, _ = carry_out(breaks=f"cp-0 {verb}")
    assert log[-1] == f"cp-0 {verb}" and len(result.failures) == 1 and result.upgraded == ()


def test_a_host_that_cannot_be_prepared_stops_before_any_node_changes() -> None:
    log, result, _ = carry_out(breaks="w-0 repository")
    assert sorted(log) == ["cp-0 repository", "w-0 repository"] and result.upgraded == ()
