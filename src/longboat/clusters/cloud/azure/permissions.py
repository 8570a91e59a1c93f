"""The least rights to make, look at and take down clusters on Azure, and those of the autoscaler: custom roles. Pure.

A role names actions, and where it is assigned says on what: Azure has no names in roles. A deployment works with the
rights of whoever begins it, so they include those of every resource of the template.
"""

from __future__ import annotations

from typing import Any

from longboat.core.jobs import Value

Body = dict[str, Any]
ANY_SUBSCRIPTION = "SUBSCRIPTION"
"""Stands for the id of a subscription that is not known here."""

_CLUSTERS = (
    "Microsoft.ContainerService/managedClusters/read", "Microsoft.ContainerService/managedClusters/write",
    "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
    "Microsoft.ContainerService/managedClusters/agentPools/read",
    "Microsoft.ContainerService/managedClusters/agentPools/delete",
    "Microsoft.ContainerService/locations/kubernetesVersions/read",
)  # fmt: skip
_GROUPS = (
    "Microsoft.Resources/subscriptions/resources/read",
    "Microsoft.Resources/subscriptions/resourceGroups/read", "Microsoft.Resources/subscriptions/resourceGroups/write",
    "Microsoft.Resources/subscriptions/resourceGroups/delete", "Microsoft.Resources/deployments/read",
    "Microsoft.Resources/deployments/write", "Microsoft.Resources/deployments/operations/read",
)  # fmt: skip
_LOOK = (
    "Microsoft.Compute/disks/read", "Microsoft.Compute/locations/usages/read", "Microsoft.Compute/skus/read",
    "Microsoft.Compute/snapshots/read", "Microsoft.Storage/storageAccounts/read",
)  # fmt: skip
_IDENTITY = (
    "Microsoft.ManagedIdentity/userAssignedIdentities/read", "Microsoft.ManagedIdentity/userAssignedIdentities/write",
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write",
    "Microsoft.Authorization/roleDefinitions/read", "Microsoft.Authorization/roleDefinitions/write",
    "Microsoft.Authorization/roleDefinitions/delete", "Microsoft.Authorization/roleAssignments/read",
    "Microsoft.Authorization/roleAssignments/write", "Microsoft.Authorization/roleAssignments/delete",
    "Microsoft.Resources/deployments/delete",
)  # fmt: skip
"""For the add-on autoscaler. Who may assign roles can give anybody every right."""


class AzureRole(Value, frozen=True):
    """A custom role: its name, and what it allows."""

    name: str
    description: str
    actions: tuple[str, ...]

    def definition(self, subscription: str = ANY_SUBSCRIPTION) -> Body:
        """As `az role definition create` takes it."""
        return {
            "Name": self.name,
            "Description": self.description,
            "Actions": sorted(self.actions),
            "NotActions": [],
            "AssignableScopes": [f"/subscriptions/{subscription}"],
        }


_PARTS = (
    "Microsoft.Network/virtualNetworks/subnets/join/action", "Microsoft.Compute/proximityPlacementGroups/write",
    "Microsoft.Compute/capacityReservationGroups/deploy/action",
)  # fmt: skip
"""Asked by Azure for what exists and pools use: a subnet, a placement group, a reservation."""


def cluster_role(cluster: str = "", *, autoscaler: bool = True, parts: bool = True) -> AzureRole:
    """For `up`, `status` and `down`, assigned on the subscription. `parts`: pools use what exists."""
    return AzureRole(
        name=f"longboat-{cluster}" if cluster else "longboat",
        description="Makes, looks at and takes down clusters by longboat cluster",
        actions=(*_GROUPS, *_CLUSTERS, *_LOOK, *(_PARTS if parts else ()), *(_IDENTITY if autoscaler else ())),
    )


_SETS = "Microsoft.Compute/virtualMachineScaleSets"


def machines_role(cluster: str = "") -> AzureRole:
    """Of the autoscaler, for the resource group with the machines, and for the cluster, of which it can only read."""
    return AzureRole(
        name=f"longboat-{cluster or 'any'}-autoscaler-machines",
        description="Orders and deletes machines of pools of AKS",
        actions=(
            "Microsoft.ContainerService/managedClusters/read",
            f"{_SETS}/read", f"{_SETS}/write", f"{_SETS}/delete/action", f"{_SETS}/instanceView/read",
            f"{_SETS}/virtualMachines/read", f"{_SETS}/networkInterfaces/read",
            "Microsoft.Compute/disks/read", "Microsoft.Compute/disks/delete",
            *_LINKED,
        ),
    )  # fmt: skip


_LINKED = (
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
)
"""What Azure asks for parts of a scale set when the set is changed."""


def look_role(cluster: str = "") -> AzureRole:
    """Of the autoscaler, for the subscription: sizes of machines, and what becomes of an operation, have no group."""
    return AzureRole(
        name=f"longboat-{cluster or 'any'}-autoscaler-look",
        description="Reads sizes of machines and the state of operations",
        actions=("Microsoft.Compute/skus/read", "Microsoft.Compute/locations/operations/read"),
    )


def autoscaler_roles(cluster: str = "") -> tuple[AzureRole, AzureRole]:
    return machines_role(cluster), look_role(cluster)
