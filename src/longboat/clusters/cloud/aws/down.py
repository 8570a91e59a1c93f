"""Takes a cluster on AWS down: what Kubernetes made outside of the stack, the stack, then a look at what is left.

Data of users, disks of claims and a file system that the stack made, goes only when asked for.
"""

from __future__ import annotations

from longboat.clouds.aws.session import AwsSession, NoSuchResource
from longboat.clusters.cloud.aws.decide import failure_of
from longboat.clusters.cloud.aws.efs.file_system import unmount
from longboat.clusters.cloud.aws.load_balancers import ClusterBalancers
from longboat.clusters.cloud.aws.observe import Leftover, is_of_others, see_leftovers, see_snapshots, see_volumes
from longboat.clusters.cloud.aws.stack import ClusterStack, Listen, ResourceEvent
from longboat.core.errors import Refused
from longboat.core.jobs import Value

_FILES = "elasticfilesystem"


class StoredData(Value, frozen=True):
    """What users of the cluster have stored."""

    volumes: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    file_systems: tuple[str, ...] = ()
    access_points: tuple[str, ...] = ()
    """Ways into file systems: EFS deletes them with theirs."""

    @property
    def names(self) -> list[str]:
        return [*self.volumes, *self.snapshots, *self.file_systems, *self.access_points]


class AwsDown:
    """`down` of one cluster."""

    def __init__(self, name: str, session: AwsSession) -> None:
        self.name, self.session = name, session
        self.stack = ClusterStack(session, name)

    def data(self) -> StoredData:
        """Data that would stay, or go with `purge`. Raises Refused for a stack or a cluster of somebody else: what is
        known as the cluster's by its name alone, load balancers and disks of claims, is that cluster's.
        """
        view = self.stack.look()
        if view is not None and view.cluster != self.name:
            raise Refused(f"the stack {view.id} was not made for the cluster {self.name}", hint="it is left alone")
        if is_of_others(self.session, self.name):
            hint = "it is left alone"
            if view is not None:  # of an `up` that failed, before somebody else took the name
                hint += f"; aws cloudformation delete-stack --stack-name {self.stack.name} removes the stack alone"
            raise Refused(f"the cluster {self.name} in EKS was not made by Longboat", hint=hint)
        files = [each.id.partition("/") for each in see_leftovers(self.session, self.name) if each.kind == _FILES]
        return StoredData(
            volumes=tuple(see_volumes(self.session, self.name)),
            snapshots=tuple(see_snapshots(self.session, self.name)),
            file_systems=tuple(id for kind, _, id in files if kind == "file-system"),
            access_points=tuple(id for kind, _, id in files if kind == "access-point"),
        )

    def run(self, listen: Listen, *, purged: StoredData) -> list[Leftover]:
        """Delete the stack and what is in `purged`; returns what is left. Raises EngineError with what cannot go."""
        view = self.stack.look()
        if view is not None:
            ClusterBalancers(self.session, self.name).delete(listen)  # they stand in its subnets
            unmount(self.session, self.name)
            events: list[ResourceEvent] = []

            def hear(event: ResourceEvent) -> None:
                events.append(event)
                listen(event)

            self.stack.delete(view.id)
            view = self.stack.follow(view.id, hear)
            if failure := failure_of(self.name, view, events):
                raise failure
        for volume in purged.volumes:
            self._gone("ec2", "delete_volume", VolumeId=volume)
        for snapshot in purged.snapshots:
            self._gone("ec2", "delete_snapshot", SnapshotId=snapshot)
        for system in purged.file_systems:
            self._gone("efs", "delete_file_system", FileSystemId=system)
        return see_leftovers(self.session, self.name)

    def _gone(self, service: str, operation: str, **arguments: str) -> None:
        try:
            self.session.call(service, operation, **arguments)
        except NoSuchResource:
            pass
