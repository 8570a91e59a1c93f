"""Makes a cluster on Azure, or changes it to what its file says: look, check, deploy, follow it to its end.

Everything is read from Azure: after an interruption the same call goes on. Add-ons in the cluster are not its task.
"""

from __future__ import annotations

from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.aws.stack import Listen
from longboat.clusters.cloud.azure.decide import (
    Decision,
    decide_up,
    digest_of,
    parameters_of,
    problems_of,
    removed_pools,
)
from longboat.clusters.cloud.azure.resource_group import ClusterGroup
from longboat.clusters.cloud.azure.template import make_template
from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.errors import EngineError, Refused

_MOST_ROUNDS = 3  # a deployment of somebody else is waited for first


class AzureUp:
    """`up` of one cluster."""

    def __init__(self, name: str, spec: CloudSpec, table: MachineTable, group: ClusterGroup) -> None:
        self.name, self.spec, self.table, self.group = name, spec, table, group

    def plan(self) -> Decision:
        """Look and decide; nothing is changed. Raises LongboatError for what can be known beforehand."""
        there = self.group.look()
        if there is None:
            self._check_region()
            return "deploy"
        return decide_up(self.name, self.spec, there, self.group.deployment(), self.group.see_cluster())

    def _check_region(self) -> None:
        spec = self.spec
        versions = self.group.versions(spec.region)
        if versions and spec.version not in versions:
            raise Refused(
                f"AKS has no Kubernetes {spec.version} in {spec.region}", hint=f"it has {', '.join(versions)}"
            )
        left = self.group.processors_left(spec.region)
        problems = problems_of(spec, self.table, self.group.sizes(spec.region), left)
        if problems:
            raise Refused(
                f"Azure would not make it: {'; '.join(problems)}", hint="the portal, Quotas; or another region"
            )

    def apply(self, listen: Listen) -> bool:
        """False: there was nothing to do. Raises EngineError with what failed."""
        changed = False
        for _ in range(_MOST_ROUNDS):
            decision = self.plan()
            if decision == "nothing":
                return changed
            if decision == "deploy" and self._deploy(listen):
                return True
            self.group.follow(listen)
            changed = True
        raise EngineError(f"others deploy {self.name} all the time", hint="the same command again")

    def _deploy(self, listen: Listen) -> bool:
        """False: somebody else was quicker; what comes of his file is not this one's."""
        tags, view = dict(self.spec.tags), self.group.see_cluster()
        for name in removed_pools(self.spec, view):
            self.group.delete_pool(name, listen)
        template = make_template(self.name, self.spec)
        if not self.group.deploy(template, parameters_of(self.spec, view), self.spec.region, tags):
            return False
        self.group.follow(listen)
        self.group.mark(tags, digest_of(self.name, self.spec))
        return True
