"""The identity of the autoscaler in a cluster's deployment: a managed identity with its rights, for its service account
alone. Pure.

By workload identity: AKS signs the pod's token, and Azure takes it for the identity. Nodes and other pods do not get
it. Roles are on the node resource group, on the cluster, and on the subscription for what has no group.
"""

from __future__ import annotations

from typing import Any

from longboat.clusters.cloud.autoscaler_identity import SUBJECT
from longboat.clusters.cloud.azure.permissions import AzureRole, autoscaler_roles
from longboat.clusters.cloud.spec import CloudSpec

Body = dict[str, Any]

IDENTITY_VERSION = "2023-01-31"
ROLE_VERSION = "2022-04-01"
DEPLOYMENT_VERSION = "2021-04-01"
AUDIENCE = "api://AzureADTokenExchange"
CLIENT_OUTPUT = "autoscalerClient"
"""Output of the deployment: the identity's client id, which its service account bears."""
_SCHEMA = "https://schema.management.azure.com/schemas/{}#"
_LONGEST_GROUP = 80  # of a node resource group's name: AKS cuts it there


def identity_name(cluster: str) -> str:
    return f"longboat-{cluster}-autoscaler"


def rights_name(cluster: str) -> str:
    """Of the deployment into the subscription."""
    return f"longboat-{cluster}-rights"


def node_group(cluster: str, region: str) -> str:
    """The resource group of the machines, as AKS itself would call it."""
    return f"MC_longboat-{cluster}_{cluster}_{region}"[:_LONGEST_GROUP]


def cluster_properties(cluster: str, spec: CloudSpec) -> Body:
    """What AKS needs for it."""
    return {
        "nodeResourceGroup": node_group(cluster, spec.region),
        "oidcIssuerProfile": {"enabled": True},
        "securityProfile": {"workloadIdentity": {"enabled": True}},
    }


def client_output(cluster: str) -> Body:
    return {"type": "string", "value": f"[reference({_identity(cluster)}, '{IDENTITY_VERSION}').clientId]"}


def role_guid(role: AzureRole) -> str:
    """Expression for the name of a role, the same for the same subscription."""
    return f"guid(subscription().id, '{role.name}')"


def autoscaler_resources(cluster: str, spec: CloudSpec, *, cluster_version: str) -> list[Body]:
    """`cluster_version`: of the interface of AKS that the template uses."""
    aks, identity = _aks(cluster), _identity(cluster)
    machines, look = autoscaler_roles(cluster)
    rights = _nested(
        rights_name(cluster),
        cluster,
        [
            *(_definition(role) for role in (machines, look)),
            _assignment(look, "subscription", "[parameters('principal')]"),
        ],
        subscriptionId="[subscription().subscriptionId]",
        location=spec.region,
    )
    after = f"[subscriptionResourceId('Microsoft.Resources/deployments', '{rights['name']}')]"
    assignment = _nested(
        f"longboat-{cluster}-machines",
        cluster,
        [_assignment(machines, "machines", "[parameters('principal')]")],
        resourceGroup=node_group(cluster, spec.region),
        dependsOn=[f"[{aks}]", f"[{identity}]", after],
    )
    return [
        *_identity_resources(cluster, spec, cluster_version),
        rights,
        assignment,
        {
            **_assignment(machines, "cluster", f"[reference({identity}, '{IDENTITY_VERSION}').principalId]"),
            "scope": f"[{aks}]",
            "dependsOn": [f"[{aks}]", after],
        },
    ]


def _identity_resources(cluster: str, spec: CloudSpec, cluster_version: str) -> list[Body]:
    """The identity, and the trust in tokens that the cluster gives the autoscaler's service account."""
    aks, identity = _aks(cluster), _identity(cluster)
    return [
        {
            "type": "Microsoft.ManagedIdentity/userAssignedIdentities",
            "apiVersion": IDENTITY_VERSION,
            "name": identity_name(cluster),
            "location": spec.region,
            "tags": {**dict(spec.tags), "longboat-cluster": cluster},
        },
        {
            "type": "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials",
            "apiVersion": IDENTITY_VERSION,
            "name": f"{identity_name(cluster)}/longboat-autoscaler",
            "dependsOn": [f"[{aks}]", f"[{identity}]"],
            "properties": {
                "issuer": f"[reference({aks}, '{cluster_version}').oidcIssuerProfile.issuerURL]",
                "subject": SUBJECT,
                "audiences": [AUDIENCE],
            },
        },
    ]


def _nested(name: str, cluster: str, resources: list[Body], **place: Any) -> Body:
    """A deployment elsewhere; its template knows the identity's principal."""
    is_of_group = "resourceGroup" in place
    kind = "2019-04-01/deploymentTemplate.json" if is_of_group else "2018-05-01/subscriptionDeploymentTemplate.json"
    principal = f"[reference({_identity(cluster)}, '{IDENTITY_VERSION}').principalId]"
    return {
        "type": "Microsoft.Resources/deployments",
        "apiVersion": DEPLOYMENT_VERSION,
        "name": name,
        "dependsOn": [f"[{_identity(cluster)}]"],
        **place,
        "properties": {
            "mode": "Incremental",
            "expressionEvaluationOptions": {"scope": "inner"},
            "parameters": {"principal": {"value": principal}},
            "template": {
                "$schema": _SCHEMA.format(kind),
                "contentVersion": "1.0.0.0",
                "parameters": {"principal": {"type": "string"}},
                "resources": resources,
            },
        },
    }


def _definition(role: AzureRole) -> Body:
    return {
        "type": "Microsoft.Authorization/roleDefinitions",
        "apiVersion": ROLE_VERSION,
        "name": f"[{role_guid(role)}]",
        "properties": {
            # Names of roles are unique in a tenant, which may have many subscriptions.
            "roleName": f"[concat('{role.name}-', subscription().subscriptionId)]",
            "description": role.description,
            "type": "CustomRole",
            "permissions": [{"actions": sorted(role.actions), "notActions": []}],
            "assignableScopes": ["[subscription().id]"],
        },
    }


def _assignment(role: AzureRole, place: str, principal: str) -> Body:
    """`place`: a word for where it is assigned, so that each has a name of its own."""
    definition = f"subscriptionResourceId('Microsoft.Authorization/roleDefinitions', {role_guid(role)})"
    return {
        "type": "Microsoft.Authorization/roleAssignments",
        "apiVersion": ROLE_VERSION,
        "name": f"[guid(subscription().id, '{role.name}', '{place}')]",
        "properties": {
            "roleDefinitionId": f"[{definition}]",
            "principalId": principal,
            "principalType": "ServicePrincipal",  # it is not known everywhere yet: Azure does not look it up
        },
    }


def _aks(cluster: str) -> str:
    return f"resourceId('Microsoft.ContainerService/managedClusters', '{cluster}')"


def _identity(cluster: str) -> str:
    return f"resourceId('Microsoft.ManagedIdentity/userAssignedIdentities', '{identity_name(cluster)}')"
