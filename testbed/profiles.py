"""What a cluster can be made of, by name; names add up. Pure.

api        the control plane alone, without root
pods       and one real node with containerd, kube-proxy and CoreDNS
two-nodes  and a second one
gpu        and simulated GPU nodes
jobset     a real node and the JobSet controller in it
kueue      a real node and the Kueue controller in it
metrics    a real node that has the image of metrics-server; who needs it starts it
nvidia     a real node with eight GPUs of a stand-in driver, handed out by NVIDIA's device plugin
older      the oldest Kubernetes that Longboat works with, in place of the newer one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed import controlplane, images, jobset, kueue, kwok, node
from testbed.binaries import OLDER
from testbed.errors import TestbedError
from testbed.kwok import Group
from testbed.manifests import Controller

METRICS = "metrics"
METRICS_SERVER = "metrics-server"
NAMES = ("api", "pods", "two-nodes", "gpu", "jobset", "kueue", METRICS, "nvidia", "older")
CONTROLLERS = {one.name: one for one in (jobset.CONTROLLER, kueue.CONTROLLER)}
"""In the order in which they start: Kueue looks after objects of JobSet, and its webhooks stop other deployments."""
DEFAULT_FLEET = "4"


@dataclass(frozen=True)
class Parts:
    """All that was asked for, added up."""

    profiles: tuple[str, ...] = ("api",)
    real_nodes: int = 0
    simulates: bool = False
    groups: tuple[Group, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Programs to have, as targets of the build."""
        real = node.TARGETS if self.real_nodes else ()
        simulated = kwok.TARGETS if self.simulates else ()
        older = (OLDER.name,) if "older" in self.profiles else ()
        nvidia = node.GPU_TARGETS if node.GPU_PROFILE in self.profiles else ()
        return (
            *controlplane.TARGETS,
            *older,
            *real,
            *nvidia,
            *self._metrics,
            *simulated,
            *(controller.name for controller in self.controllers),
        )

    @property
    def controllers(self) -> tuple[Controller, ...]:
        return tuple(controller for name, controller in CONTROLLERS.items() if name in self.profiles)

    @property
    def images(self) -> tuple[str, ...]:
        """What a real node has from the start."""
        return (*images.BASE, *(controller.name for controller in self.controllers), *self._metrics)

    @property
    def _metrics(self) -> tuple[str, ...]:
        return (METRICS_SERVER,) if METRICS in self.profiles else ()


def combine(names: Sequence[str], fleet: Sequence[str] = ()) -> Parts:
    """Add the profiles up. `fleet` are groups of simulated nodes, and asks for `gpu` by itself."""
    wanted = {"api", *names, *(("gpu",) if fleet else ())}
    unknown = sorted(wanted - set(NAMES))
    if unknown:
        raise TestbedError(f"no profile {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if wanted & {"two-nodes", node.GPU_PROFILE, METRICS, *CONTROLLERS}:
        wanted.add("pods")
    groups = tuple(kwok.parse_group(text) for text in fleet or ([DEFAULT_FLEET] if "gpu" in wanted else []))
    real_nodes = 2 if "two-nodes" in wanted else 1 if "pods" in wanted else 0
    return Parts(tuple(name for name in NAMES if name in wanted), real_nodes, "gpu" in wanted, groups)


def with_empty_fleet(parts: Parts) -> Parts:
    """KWOK runs and has no nodes yet: tests add their own."""
    names = tuple(name for name in NAMES if name in (*parts.profiles, "gpu"))
    return replace(parts, profiles=names, simulates=True, groups=())
