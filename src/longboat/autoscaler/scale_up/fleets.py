"""Fleets that pods can be put on: ready nodes, coming ones, those cordoned by us, those about to be bought. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from longboat.autoscaler.model.daemonsets import daemon_pods
from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.snapshot import AutoscalerSettings, Daemon, SeenPod
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import UNSCHEDULABLE, NodeShape
from longboat.fitting.model.pods import Pod


class Fleets:
    def __init__(
        self,
        machines: Sequence[Machine],
        pods: Mapping[str, list[SeenPod]],
        daemons: Mapping[str, tuple[Daemon, ...]],
        settings: AutoscalerSettings,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        groups: dict[str, tuple[list[NodeShape], list[Pod]]] = {name: ([], []) for name in ("ready", "coming", "ours")}
        self.machines = {machine.name: machine for machine in machines}
        for machine in machines:
            if machine.condition not in ("ready", "booting"):
                continue
            here = pods.get(machine.name, ())
            group = "ready" if machine.condition == "ready" else "coming"
            shape = machine.shape
            if machine.cordon == "ours":
                group, shape = "ours", schedulable(shape)
            groups[group][0].append(shape)
            groups[group][1].extend(held_by(here, settings))
            if machine.condition == "booting" and machine.pool is not None:
                present = {pod.daemon for pod in here if pod.daemon}
                groups[group][1].extend(daemon_pods(daemons.get(machine.pool.name, ()), machine.name, present))
        self.ready, self.coming, self.ours = (
            Fleet(shapes, held, namespaces=namespaces) for shapes, held in groups.values()
        )

        self.namespaces = namespaces
        self.bought = Fleet((), namespaces=namespaces)

    @property
    def all(self) -> tuple[Fleet, ...]:
        """All fleets, in the order in which pods are placed on them."""
        return self.ready, self.coming, self.ours, self.bought


def held_by(pods: Sequence[SeenPod], settings: AutoscalerSettings) -> list[Pod]:
    """Pods that take something from their node. Expendable ones give way to whoever comes."""
    least = settings.expendable_below
    return [
        pod.pod for pod in pods if not pod.pod.is_finished and (pod.pod.priority >= least or pod.daemon is not None)
    ]


def schedulable(shape: NodeShape) -> NodeShape:
    taints = tuple(taint for taint in shape.taints if taint.key != UNSCHEDULABLE.key)
    return msgspec.structs.replace(shape, is_unschedulable=False, taints=taints)
