"""The least rights to make, look at and take down clusters on Google Cloud, and those of the autoscaler: custom roles.
Pure.

Google has no names in roles: a role holds for a whole project. In the cluster GKE takes the same roles for Kubernetes'
own objects, so those of the add-ons are in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.core.jobs import Value

_CLUSTERS = (
    "container.clusters.create", "container.clusters.delete", "container.clusters.get", "container.clusters.list",
    "container.clusters.update", "container.clusters.getCredentials", "container.operations.get",
    "container.operations.list", "iam.serviceAccounts.actAs",
)  # fmt: skip
_MACHINES = ("compute.instanceGroupManagers.get", "compute.machineTypes.get", "compute.regions.get")
_LEFTOVERS = (
    "compute.addresses.list", "compute.disks.delete", "compute.disks.list", "compute.firewalls.list",
    "compute.forwardingRules.list", "compute.snapshots.delete", "compute.snapshots.list", "file.instances.delete",
    "file.instances.list",
)  # fmt: skip
"""What `down` looks for, and the data of claims, which it deletes when asked."""
_IDENTITY = (
    "iam.roles.create", "iam.roles.get", "iam.roles.undelete", "iam.roles.update", "iam.roles.delete",
    "resourcemanager.projects.get", "resourcemanager.projects.getIamPolicy", "resourcemanager.projects.setIamPolicy",
)  # fmt: skip
"""For the add-on autoscaler. Who may set a project's policy can give anybody every right."""
_ALL = ("create", "delete", "get", "list", "update")
_OBJECTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "configMaps", "customResourceDefinitions", "daemonSets", "deployments", "jobs", "namespaces",
            "roleBindings", "secrets", "serviceAccounts", "services", "storageClasses", "thirdPartyObjects",
        ),
        _ALL,
    ),
    "apiServices": _ALL,
    "clusterRoleBindings": _ALL,
    "clusterRoles": (*_ALL, "bind", "escalate"),
    "mutatingWebhookConfigurations": _ALL,
    "roles": (*_ALL, "bind", "escalate"),
    "validatingWebhookConfigurations": _ALL,
    "events": ("list",),
    "ingresses": ("delete", "list"),
    "nodes": ("get", "list"),
    "pods": ("create", "delete", "exec", "get", "getLogs", "list"),
}  # fmt: skip
"""Kubernetes' objects that add-ons are made of, and what `up` looks at in the end."""


class GoogleRole(Value, frozen=True):
    """A custom role: its id, its title and what it allows."""

    id: str
    title: str
    permissions: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As `gcloud iam roles create` takes it, and the API."""
        return {
            "title": self.title,
            "description": "Of Longboat; longboat cluster permissions prints it",
            "stage": "GA",
            "includedPermissions": sorted(self.permissions),
        }


def cluster_role(cluster: str = "", *, autoscaler: bool = True) -> GoogleRole:
    """For `up`, `status` and `down`, granted on the project."""
    objects = [f"container.{kind}.{verb}" for kind, verbs in _OBJECTS.items() for verb in verbs]
    return GoogleRole(
        id=role_id(cluster, ""),
        title=f"longboat cluster {cluster}".strip(),
        permissions=(*_CLUSTERS, *_MACHINES, *_LEFTOVERS, *objects, *(_IDENTITY if autoscaler else ())),
    )


def autoscaler_role(cluster: str = "") -> GoogleRole:
    """Machines are made by Google's own account, in the name of the group: the right to change the group is enough."""
    return GoogleRole(
        id=role_id(cluster, ".autoscaler"),
        title=f"longboat autoscaler {cluster}".strip(),
        permissions=(
            "container.clusters.get", "compute.instanceGroupManagers.get", "compute.instanceGroupManagers.update",
            "compute.instanceGroups.get", "compute.instanceGroups.update", "compute.machineTypes.get",
        ),
    )  # fmt: skip


def role_id(cluster: str, end: str) -> str:
    """Ids of roles have no dashes. Names of clusters have no dots: no other cluster has a role of this id."""
    return f"longboat_{cluster.replace('-', '_')}{end}" if cluster else f"longboat{end}"
