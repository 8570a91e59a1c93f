"""Facts that checks judge: typed keys with a time limit each, and what was seen under them. Not how they are seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from longboat.doctor.findings import Judgement, skipped

if TYPE_CHECKING:
    from longboat.doctor.probes.outcomes import NetworkProbe, StorageProbe, TrainProbe
    from longboat.doctor.values import (
        AdmissionWebhook,
        ApiAnswer,
        AutoscalerReport,
        ClientFacts,
        HostReport,
        LeaseTimes,
        Leftovers,
        MachineFacts,
        Rollout,
    )
    from longboat.engines.kubernetes.explain.network_policies import BlockedTraffic
    from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts

T = TypeVar("T")
Object = dict[str, Any]
LOOK_S = 30.0
"""For a few requests: a server that is so slow is a finding of its own."""
PODS_S = 180.0
"""For pods that pull an image, start, and look around."""


class Fact(Generic[T]):
    """A key. `name` is what it is called where it could not be seen."""

    def __init__(self, name: str, limit_s: float = LOOK_S) -> None:
        self.name, self.limit_s = name, limit_s

    def __repr__(self) -> str:
        return f"Fact({self.name!r})"


class NotSeen(Exception):
    """A check asked for a fact that could not be observed."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(judgement.detail)
        self.judgement = judgement


class Seen:
    """All facts of one examination; asking for one that could not be had raises NotSeen."""

    def __init__(self, values: Mapping[Fact[Any], Any], problems: Mapping[Fact[Any], Judgement] | None = None) -> None:
        self.values, self.problems = dict(values), dict(problems or {})

    def __getitem__(self, fact: Fact[T]) -> T:
        if fact in self.values:
            value: T = self.values[fact]
            return value
        raise NotSeen(self.problems.get(fact, skipped(f"{fact.name}: not looked at")))


MACHINE: Fact[MachineFacts] = Fact("this machine")
CLIENT: Fact[ClientFacts] = Fact("the kubeconfig")
API: Fact[ApiAnswer] = Fact("the API server", 45.0)  # a server that restarts is waited for
READY: Fact[tuple[str, ...]] = Fact("the API server's own checks")
CLUSTER: Fact[ClusterFacts] = Fact("the cluster", 60.0)  # lists of all nodes and pods of a large one
NODES: Fact[list[Object]] = Fact("nodes", 60.0)
LEASES: Fact[LeaseTimes] = Fact("heartbeats of nodes")
WEBHOOKS: Fact[list[AdmissionWebhook]] = Fact("admission webhooks")
SIGNINGS: Fact[list[Object]] = Fact("certificate requests")
DNS: Fact[int] = Fact("the cluster's DNS")
POLICIES: Fact[list[BlockedTraffic]] = Fact("network policies")
CLAIMS: Fact[list[Object]] = Fact("claims")
PLUGINS: Fact[list[Rollout]] = Fact("device plugins")
OPERATORS: Fact[list[Rollout]] = Fact("controllers of JobSet and Kueue")
CONTROLLER: Fact[tuple[str, str] | None] = Fact("the controller")
AUTOSCALER: Fact[AutoscalerReport | None] = Fact("the autoscaler")
PODS: Fact[list[Object]] = Fact("pods of the namespace")
LEFTOVERS: Fact[Leftovers] = Fact("leftovers of runs")
NETWORK_PROBE: Fact[NetworkProbe] = Fact("two pods", PODS_S)
STORAGE_PROBE: Fact[StorageProbe] = Fact("a pod with a claim", PODS_S)
TRAIN_PROBE: Fact[TrainProbe] = Fact("a pod that trains", PODS_S)
HOSTS: Fact[list[HostReport]] = Fact("the hosts", 240.0)  # logins, and two scripts that may hang on each
