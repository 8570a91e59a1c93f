"""Makes a cluster in GKE, or changes it to what its file says: look, check, ask for it, follow it to its end.

Everything is read from Google: after an interruption the same call goes on. Add-ons in the cluster are not its task.
"""

from __future__ import annotations

from collections.abc import Callable

from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.aws.stack import Listen
from longboat.clusters.cloud.gcp.cluster_view import GkeView
from longboat.clusters.cloud.gcp.decide import GkeStep, decide_up, quota_problems
from longboat.clusters.cloud.gcp.gke import GkeCluster
from longboat.clusters.cloud.gcp.request import zone_of
from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.errors import EngineError, Refused

_MOST_ROUNDS = 10  # of steps: who changes the file meanwhile is not followed for ever


class GcpUp:
    """`up` of one cluster."""

    def __init__(self, name: str, spec: CloudSpec, table: MachineTable, cluster: GkeCluster) -> None:
        self.name, self.spec, self.table, self.cluster = name, spec, table, cluster

    def plan(self) -> tuple[GkeStep, ...]:
        """Look and decide; nothing is changed. Raises LongboatError for what can be known beforehand."""
        view = self.cluster.look(with_sizes=True)
        if view is None:
            self._check_region()
        elif view.status == "PROVISIONING":
            return ()  # it is followed first
        return decide_up(self.name, self.spec, self.table, view, self.cluster.project)

    def _check_region(self) -> None:
        spec = self.spec
        versions = self.cluster.versions()
        if versions and not any(version.startswith((f"{spec.version}.", f"{spec.version}-")) for version in versions):
            offered = sorted({".".join(version.split(".")[:2]) for version in versions})
            raise Refused(f"GKE has no Kubernetes {spec.version} in {spec.region}", hint=f"it has {', '.join(offered)}")
        for pool in spec.pools:
            if not self.cluster.has_type(zone_of(spec, pool), pool.type):
                message = f"pool {pool.name}: {zone_of(spec, pool)} has no {pool.type}"
                raise Refused(message, hint="gcloud compute machine-types list --filter name=TYPE shows where it is")
        problems = quota_problems(spec, self.table, self.cluster.quotas())
        if problems:
            message = f"the project may not have so many machines in {spec.region}: {'; '.join(problems)}"
            raise Refused(message, hint="IAM & Admin, Quotas: ask Google for more")

    def apply(self, listen: Listen) -> bool:
        """Do and follow what the plan says, one operation after the other: GKE takes no two. False: nothing to do."""
        changed = False
        for _ in range(_MOST_ROUNDS):
            operation = self.cluster.running()
            if operation is None:
                steps = self.plan()
                if not steps:
                    return changed
                operation = self.cluster.begin(steps[0]) or self.cluster.running()
            changed = True
            if operation is not None:
                self.cluster.follow(operation, listen)
        words = f": {self.cluster.conflict}" if self.cluster.conflict else ""
        hint = "longboat cluster status shows what differs; the same command tries again"
        raise EngineError(f"{self.name} does not become as its file says{words}", hint=hint)

    def give_rights(self, account: Callable[[], str]) -> bool:
        """To the autoscaler, where there is to be one. False: it has them. `account`: gives its uid in the cluster."""
        return self.spec.autoscaler and self.cluster.rights().give(account())

    def result(self) -> GkeView:
        view = self.cluster.look()
        if view is None:
            raise EngineError(f"{self.name} is gone", hint="was it taken down meanwhile?")
        if not view.endpoint:
            raise EngineError(f"{self.name} has no API server yet: {view.status}", hint="the same command goes on")
        return view
