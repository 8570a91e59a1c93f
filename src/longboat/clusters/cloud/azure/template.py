"""The ARM template of a cluster: AKS with its pools, in one deployment of a resource group. Pure."""

from __future__ import annotations

from typing import Any

from longboat.clusters.cloud.azure.autoscaler_template import (
    CLIENT_OUTPUT,
    autoscaler_resources,
    client_output,
    cluster_properties,
)
from longboat.clusters.cloud.labels import labels_of
from longboat.clusters.cloud.spec import CloudPool, CloudSpec

Body = dict[str, Any]

API_VERSION = "2025-05-01"
SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
CLUSTER_TAG = "longboat-cluster"
"""Names of tags may not have a slash on Azure."""


def parameter(name: str) -> str:
    return f"[parameters('{name}')]"


def system_pool(spec: CloudSpec) -> CloudPool | None:
    """The pool for AKS's own pods: on demand, never empty, without GPUs if there is such a one."""
    able = [pool for pool in spec.pools if not pool.spot and pool.min >= 1 and not pool.taints]
    return min(able, key=lambda pool: (pool.gpus, spec.pools.index(pool)), default=None)


def make_template(cluster: str, spec: CloudSpec) -> Body:
    more = autoscaler_resources(cluster, spec, cluster_version=API_VERSION) if spec.autoscaler else []
    return {
        "$schema": SCHEMA,
        "contentVersion": "1.0.0.0",
        "metadata": {"description": f"The Kubernetes cluster {cluster}, made by Longboat"},
        "parameters": _parameters(spec),
        "resources": [_cluster(cluster, spec), *more],
        "outputs": {
            "fqdn": {
                "type": "string",
                "value": f"[reference(resourceId('Microsoft.ContainerService/managedClusters', '{cluster}')).fqdn]",
            },
            **({CLIENT_OUTPUT: client_output(cluster)} if spec.autoscaler else {}),
        },
    }


def parameter_values(spec: CloudSpec) -> dict[str, Any]:
    values: dict[str, Any] = {"location": spec.region, "kubernetesVersion": spec.version}
    for pool in spec.pools:
        values |= {f"{pool.name}Count": pool.count, f"{pool.name}Min": pool.min, f"{pool.name}Max": pool.max}
    return values


def _parameters(spec: CloudSpec) -> Body:
    kinds = {str: "string", int: "int"}
    return {name: {"type": kinds[type(value)], "defaultValue": value} for name, value in parameter_values(spec).items()}


def range_tags(pool: CloudPool) -> dict[str, str]:
    """By which Longboat's autoscaler knows how many machines the pool may have; AKS's own keeps off."""
    return {"min": str(pool.min), "max": str(pool.max)}


def _cluster(cluster: str, spec: CloudSpec) -> Body:
    properties: Body = {
        "dnsPrefix": cluster,
        "kubernetesVersion": parameter("kubernetesVersion"),
        "agentPoolProfiles": [_pool(spec, pool) for pool in spec.pools],
        "networkProfile": {"networkPlugin": "azure", "networkPluginMode": "overlay"},
        "enableRBAC": True,
    }
    if spec.autoscaler:
        properties |= cluster_properties(cluster, spec)
    if spec.network.access != ("0.0.0.0/0",):
        properties["apiServerAccessProfile"] = {"authorizedIPRanges": list(spec.network.access)}
    return {
        "type": "Microsoft.ContainerService/managedClusters",
        "apiVersion": API_VERSION,
        "name": cluster,
        "location": parameter("location"),
        "tags": {**dict(spec.tags), CLUSTER_TAG: cluster},
        "identity": {"type": "SystemAssigned"},
        "sku": {"name": "Base", "tier": "Standard"},
        "properties": properties,
    }


def _pool(spec: CloudSpec, pool: CloudPool) -> Body:
    body: Body = {
        "name": pool.name,
        "mode": "System" if pool == system_pool(spec) else "User",
        "type": "VirtualMachineScaleSets",
        "vmSize": pool.type,
        "osType": "Linux",
        "osDiskSizeGB": pool.disk_gib,
        "count": parameter(f"{pool.name}Count"),
        "nodeLabels": labels_of(pool),
    }
    if pool.min < pool.max and spec.autoscaler:
        body["tags"] = range_tags(pool)
    elif pool.min < pool.max:
        sizes = {"minCount": parameter(f"{pool.name}Min"), "maxCount": parameter(f"{pool.name}Max")}
        body |= {"enableAutoScaling": True, **sizes}
    if pool.gpus:
        body["gpuProfile"] = {"driver": "Install"}
    if pool.spot:
        body |= {"scaleSetPriority": "Spot", "scaleSetEvictionPolicy": "Delete", "spotMaxPrice": -1}
    if pool.zones:
        body["availabilityZones"] = list(pool.zones)
    ids = (
        ("vnetSubnetID", spec.network.subnet),
        ("proximityPlacementGroupID", pool.placement_group),
        ("capacityReservationGroupID", pool.reservation),
    )
    body |= {name: id for name, id in ids if id is not None}
    if pool.taints:
        body["nodeTaints"] = [str(taint) for taint in pool.taints]
    return body
