"""The request that makes a cluster of GKE: the body of projects.locations.clusters.create. Pure."""

from __future__ import annotations

from typing import Any

from longboat.clouds.machine_types import CloudMachine, MachineTable
from longboat.clusters.cloud.labels import labels_of
from longboat.clusters.cloud.spec import CloudPool, CloudSpec

Body = dict[str, Any]

CLUSTER_LABEL = "longboat-cluster"
MIN_LABEL, MAX_LABEL = "longboat-min", "longboat-max"
IDENTITY_MODE = "GKE_METADATA"
"""Pods are who their service accounts are, and not their node."""
LONGEST_RUN = "604800s"
"""Of machines with flex start: a week, the most that Google gives."""
ANY_PROJECT = "$PROJECT"
"""Stands for a project that is not known here."""
ACCELERATORS = {
    ("T4", 16): "nvidia-tesla-t4",
    ("L4", 24): "nvidia-l4",
    ("A100", 40): "nvidia-tesla-a100",
    ("A100", 80): "nvidia-a100-80gb",
    ("H100", 80): "nvidia-h100-80gb",
    ("H200", 141): "nvidia-h200-141gb",
    ("B200", 180): "nvidia-b200",
}
"""GPU and its memory in GiB, as in the table -> Google's name."""
EFFECTS = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}


def zone_of(spec: CloudSpec, pool: CloudPool) -> str:
    """A pool lies in one zone, so that its count is what is written; every region has a zone b."""
    return pool.zones[0] if pool.zones else f"{spec.region}-b"


def workload_pool(project: str) -> str:
    """By whose names Google knows the service accounts of a project's clusters."""
    return f"{project}.svc.id.goog"


def range_labels(pool: CloudPool) -> dict[str, str]:
    """By which Longboat's autoscaler knows how many machines the pool may have; GKE's own keeps off."""
    return {MIN_LABEL: str(pool.min), MAX_LABEL: str(pool.max)}


def make_request(cluster: str, spec: CloudSpec, table: MachineTable, project: str = ANY_PROJECT) -> Body:
    body: Body = {
        "name": cluster,
        "initialClusterVersion": spec.version,
        "locations": sorted({zone_of(spec, pool) for pool in spec.pools}),
        "nodePools": [_pool(spec, pool, table.machines[pool.type]) for pool in spec.pools],
        "resourceLabels": {**dict(spec.tags), CLUSTER_LABEL: cluster},
        "shieldedNodes": {"enabled": True},
        # GKE leaves it off; without it no claim can be mounted by many machines, and it costs nothing by itself.
        "addonsConfig": {"gcpFilestoreCsiDriverConfig": {"enabled": True}},
    }
    places = (("network", spec.network.name), ("subnetwork", spec.network.subnet))
    body |= {key: name for key, name in places if name is not None}
    if spec.autoscaler:
        body["workloadIdentityConfig"] = {"workloadPool": workload_pool(project)}
    if spec.network.access != ("0.0.0.0/0",):
        blocks = [{"cidrBlock": network} for network in spec.network.access]
        access = {"enabled": True, "cidrBlocks": blocks}
        body["controlPlaneEndpointsConfig"] = {"ipEndpointsConfig": {"authorizedNetworksConfig": access}}
    return {"cluster": body}


def _pool(spec: CloudSpec, pool: CloudPool, machine: CloudMachine) -> Body:
    config: Body = {
        "machineType": pool.type,
        "diskSizeGb": pool.disk_gib,
        "labels": labels_of(pool),
        "spot": pool.spot,
    }
    if pool.taints:
        config["taints"] = [
            {"key": taint.key, "value": taint.value, "effect": EFFECTS[taint.effect]} for taint in pool.taints
        ]
    if pool.gpus:
        config["accelerators"] = [_accelerator(machine)]
    if pool.reservation:
        config["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [pool.reservation],
        }
    if pool.flex_start:
        # GKE has it so: nothing is repaired, and nothing is taken from reservations.
        config |= {"flexStart": True, "maxRunDuration": LONGEST_RUN}
        config["reservationAffinity"] = {"consumeReservationType": "NO_RESERVATION"}
    body: Body = {
        "name": pool.name,
        "initialNodeCount": pool.count,
        "locations": [zone_of(spec, pool)],
        "config": config,
    }
    if spec.autoscaler:
        config["workloadMetadataConfig"] = {"mode": IDENTITY_MODE}
    if pool.min < pool.max and spec.autoscaler:
        config["resourceLabels"] = range_labels(pool)
    elif pool.min < pool.max:
        body["autoscaling"] = {"enabled": True, "totalMinNodeCount": pool.min, "totalMaxNodeCount": pool.max}
    if pool.flex_start:
        body["management"] = {"autoRepair": False}
    if pool.placement_group:
        body["placementPolicy"] = {"type": "COMPACT"}
    return body


def _accelerator(machine: CloudMachine) -> Body:
    known = ACCELERATORS.get((machine.gpu, round(machine.gpu_memory_gib)))
    return {
        "acceleratorType": known or machine.gpu,  # a table of the user's may have Google's own name
        "acceleratorCount": str(machine.gpus),
        "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
    }
