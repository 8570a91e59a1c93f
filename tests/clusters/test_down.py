"""The order of `down`: drain, undo, delete the node; control planes one by one, the first last. Simulated transport."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from longboat.clusters.apply.step_log import StepEvent
from longboat.clusters.down import ClusterDown, DownResult
from longboat.clusters.hosts.connection import CommandResult, Content, Line
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.spec import ClusterSpec, HostSpec
from tests.clusters.worlds import bare, cluster


class SimulatedHost:
    """Writes down what it was asked for; `breaks`: what fails, as `w-0 drain`."""

    def __init__(self, name: str, log: list[str], breaks: Sequence[str]) -> None:
        self.name, self.log, self.breaks = name, log, breaks

    def run(
        self, script: str, *, stdin: Content = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        what = self._read(script)
        self.log.append(what)
        if what in self.breaks:
            return CommandResult(code=1, stdout="", stderr="error: broken")
        return CommandResult(code=0, stdout="", stderr="")

    def _read(self, script: str) -> str:
        words = script.split()
        if " drain " in script:
            return f"{words[words.index('drain') + 1]} drain"
        if " delete node " in script:
            return f"{words[words.index('node') + 1]} node"
        if "pvc-?" in script:
            return f"{self.name} {'purge' if 'rm -rf' in script else 'volumes'}"
        verb = "undo" if 'sh -eu "$HERE/run"' in script else "audit" if "inventory" in script else "forget"
        return f"{self.name} {verb}"

    def close(self) -> None: ...


def take_down(
    spec: ClusterSpec, *, leaving: Sequence[HostSpec] | None = None, breaks: Sequence[str] = (),
    purged: Sequence[str] = (),
) -> tuple[list[str], DownResult]:  # fmt: skip
    log: list[str] = []
    facts: dict[str, HostFacts] = {}
    for host in (*spec.hosts, *(leaving or ())):
        files = (("/etc/kubernetes/admin.conf", "x"),) if host.role == "control-plane" else ()
        facts[host.name] = bare(host.name, journal_cluster=spec.name, files=files)
    hosts = {name: SimulatedHost(name, log, breaks) for name in facts}
    events: list[StepEvent] = []
    work = ClusterDown(spec, hosts, facts, events.append, grace_s=0.5, leaving=leaving, purged=purged)
    return log, work.run()


def test_a_worker_is_drained_undone_and_then_deleted_and_the_control_plane_goes_last() -> None:
    log, result = take_down(cluster(workers=1))
    assert log == [
        "w-0 drain", "w-0 undo", "w-0 node", "w-0 audit", "w-0 forget", "cp-0 undo", "cp-0 audit", "cp-0 forget",
    ]  # fmt: skip
    assert result.is_clean


def test_control_planes_leave_one_after_the_other() -> None:
    """`kubeadm reset` takes each out of etcd, which needs a majority; and it needs the node to do so."""
    log, _ = take_down(cluster(planes=3, workers=0, endpoint="10.0.0.9"))
    assert [line for line in log if not line.endswith(("audit", "forget"))] == [
        "cp-1 drain", "cp-1 undo", "cp-1 node", "cp-2 drain", "cp-2 undo", "cp-2 node", "cp-0 undo",
    ]  # fmt: skip


def test_a_host_that_leaves_a_living_cluster_stays_if_its_trainings_have_not_gone() -> None:
    leaving = [HostSpec(name="w-9", address="w-9")]
    log, result = take_down(cluster(), leaving=leaving, breaks=["w-9 drain"])
    assert log == ["w-9 drain"] and not result.is_clean


def test_a_host_leaves_its_journal_when_its_node_is_gone() -> None:
    """Whatever ends the command before that: the next one finds the journal and deletes the node."""
    leaving = [HostSpec(name="w-9", address="w-9")]
    log, result = take_down(cluster(), leaving=leaving, breaks=["w-9 node"])
    assert log == ["w-9 drain", "w-9 undo", "w-9 node"] and not result.is_clean
    log, result = take_down(cluster(workers=1), breaks=["w-0 node"])
    assert "w-0 forget" in log, "of a cluster that goes as a whole nobody needs it"


def test_a_cluster_that_goes_goes_even_if_a_node_cannot_be_drained() -> None:
    log, result = take_down(cluster(workers=1), breaks=["w-0 drain"])
    assert "w-0 undo" in log and "cp-0 undo" in log and not result.is_clean


def test_what_is_not_undone_is_not_forgotten() -> None:
    log, result = take_down(cluster(workers=0), breaks=["cp-0 undo"])
    assert log == ["cp-0 undo"] and [failure.step for failure in result.failures] == ["undo"]


@pytest.mark.parametrize(
    ("purged", "step"), [((), "volumes"), (("pvc-0f8fad5b-d9cb-469f-a165-70867728950e",), "purge")]
)
def test_volumes_are_looked_at_when_nothing_mounts_them_any_more(purged: Sequence[str], step: str) -> None:
    spec = cluster(workers=0, addons=("storage",))
    assert take_down(spec, purged=purged)[0] == ["cp-0 undo", f"cp-0 {step}", "cp-0 audit", "cp-0 forget"]
    log, result = take_down(spec, purged=purged, breaks=[f"cp-0 {step}"])
    assert "cp-0 forget" not in log and not result.is_clean


def test_after_ctrl_c_nothing_more_is_begun_on_a_host() -> None:
    """It comes while a node is drained: that node the user may want to keep."""
    spec = cluster(workers=1)
    facts = {host.name: bare(host.name, journal_cluster=spec.name) for host in spec.hosts}
    facts["cp-0"] = msgspec.structs.replace(facts["cp-0"], files=(("/etc/kubernetes/admin.conf", "x"),))
    is_told = threading.Event()
    log: list[str] = []

    class Interrupting(SimulatedHost):
        def run(self, script: str, **options: Any) -> CommandResult:
            if self._read(script) == "w-0 drain":
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                assert is_told.wait(30)
            return super().run(script, **options)

    hosts = {name: Interrupting(name, log, ()) for name in facts}
    work = ClusterDown(spec, hosts, facts, lambda event: None, grace_s=1)
    with pytest.raises(KeyboardInterrupt):
        work.run()
    is_told.set()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon and thread.name.startswith("Thread-"):
            thread.join(30)
    assert log == ["w-0 drain"]


def test_hosts_of_another_cluster_are_left_alone() -> None:
    spec = cluster(workers=0)
    log, _ = take_down(msgspec.structs.replace(spec, hosts=spec.hosts))
    assert log[0] == "cp-0 undo"
    work = ClusterDown(spec, {}, {"cp-0": bare("cp-0", journal_cluster="other")}, lambda event: None, grace_s=1)
    assert work.run().audits == ()


@pytest.mark.parametrize(("grace", "seconds"), [(0.0, 1), (0.5, 1), (60.0, 60), (60.2, 61)])
def test_no_grace_is_not_endless_grace(grace: float, seconds: int) -> None:
    """kubectl takes a limit of 0 for none."""
    from longboat.clusters.apply.nodes import drain

    class Asked(SimulatedHost):
        def _read(self, script: str) -> str:
            assert f"end=$(($(date +%s) + {seconds}))\n" in script and "--timeout=${left}s " in script
            return "x"

    drain(Asked("cp-0", [], ()), "w-0", grace_s=grace)
