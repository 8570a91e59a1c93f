"""Carries out an upgrade: what no training notices on all hosts at once, then one node after the other.

The first failure ends it: a cluster with a broken node is not made worse. What was reached stays, and the same upgrade
goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from longboat.clusters.apply import nodes as cluster_nodes
from longboat.clusters.apply.answers import answered
from longboat.clusters.apply.execute import Execution, perform
from longboat.clusters.apply.restart import RESTART_S
from longboat.clusters.apply.step_log import Listener, StepFailure, StepLog
from longboat.clusters.hosts.connection import Content, HostConnection
from longboat.clusters.plan.steps import Step
from longboat.clusters.plan.upgrade_plan import UpgradePlan
from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.core.words import listing

READY_S = 600.0  # a kubelet of a new version looks at all its pods anew, and its network may pull images
_LOOK_S = 5.0  # trainings take minutes to days


class Patience(Value, frozen=True):
    """How long an upgrade waits for trainings on a node to drain."""

    wait_s: float
    """So long their end is waited for; 0: not at all."""
    grace_s: float
    """Pods that are told to go have so long."""


class UpgradeResult(Value, frozen=True):
    failures: tuple[StepFailure, ...] = ()
    upgraded: tuple[str, ...] = ()
    """Nodes that have the new version now."""


class ClusterUpgrade:
    def __init__(
        self,
        plan: UpgradePlan,
        hosts: Mapping[str, HostConnection],
        listen: Listener,
        *,
        control: str,
        images: Callable[[], Path],
        patience: Patience,
    ) -> None:
        """`control`: the host whose kubectl is used. `images`: the image archive, where there is one."""
        self._plan = plan
        self._hosts = hosts
        self._listen = listen
        self._log = StepLog(listen)
        self._control = hosts[control]
        self._images = images
        self._patience = patience

    def run(self) -> UpgradeResult:
        failures = Execution(self._hosts, self._stdin, self._listen).run(self._plan.prepare)
        upgraded: list[str] = []
        for node in self._plan.nodes:
            if failures or not all(self._try(step) for step in node.steps):
                break
            upgraded.append(node.host)
        return UpgradeResult(failures=(*failures, *self._log.failures), upgraded=tuple(upgraded))

    def _stdin(self, step: Step) -> Content:
        return self._images() if step.kind == "images" else b""

    def _try(self, step: Step) -> bool:
        return self._log.attempt(step.host, step.name, lambda: self._perform(step), title=step.title)

    def _perform(self, step: Step) -> None:
        if step.kind == "drain":
            self._drain(step)
        elif step.kind == "ready":
            cluster_nodes.wait_for_version(self._control, step.host, self._plan.version, READY_S)
            cluster_nodes.end_upgrade(self._control, step.host)
        else:
            perform(self._hosts[step.host], step, self._stdin(step), self._log)

    def _drain(self, step: Step) -> None:
        answered(lambda: cluster_nodes.read_nodes(self._control))  # its API server may just have been replaced
        cluster_nodes.cordon_for_upgrade(self._control, step.host, self._plan.version)
        if self._patience.wait_s:
            self._wait_for_trainings(step)
        cluster_nodes.drain(self._control, step.host, grace_s=self._patience.grace_s)

    def _trainings(self, host: str) -> list[str]:
        return cluster_nodes.read_trainings(self._control, [host]).get(host, [])

    def _wait_for_trainings(self, step: Step) -> None:
        deadline = time.monotonic() + self._patience.wait_s
        shown: list[str] = []
        while pods := answered(lambda: self._trainings(step.host), RESTART_S):
            if pods != shown:
                self._log.tell(step.host, step.name, "waiting", f"for {listing(pods, 3)}")
                shown = pods
            if time.monotonic() > deadline:
                raise EngineError(f"{listing(pods, 3)}: still there after {self._patience.wait_s:g} s")
            time.sleep(_LOOK_S)
