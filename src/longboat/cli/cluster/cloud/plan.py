"""The plan of a cluster in a cloud as people read it: its pools, and what it costs by the hour."""

from __future__ import annotations

from longboat.cli.output.tables import print_fields, print_table
from longboat.clouds.machine_types import BadTable, MachineTable, load_table
from longboat.clusters.cloud.aws.charges import fixed_charges as aws_charges
from longboat.clusters.cloud.azure.charges import fixed_charges as azure_charges
from longboat.clusters.cloud.cost import PlanCost, money, plan_cost
from longboat.clusters.cloud.gcp.charges import fixed_charges as gcp_charges
from longboat.clusters.cloud.spec import CloudSpec
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import Refused, UsageError

CHARGES = {"aws": aws_charges, "azure": azure_charges, "gcp": gcp_charges}


def cloud_of(spec: ClusterSpec) -> CloudSpec:
    """The cloud part of a cluster. Raises UsageError for clusters of hosts."""
    if spec.cloud is None:
        raise UsageError(
            f"{spec.name} is of the kind {spec.kind}, not of a cloud",
            hint="kind: aws, azure or gcp; see docs/clouds.md",
        )
    return spec.cloud


def deployable(spec: ClusterSpec) -> CloudSpec:
    """The cloud part of a cluster on AWS. Raises Refused for other clouds."""
    cloud = cloud_of(spec)
    if spec.kind != "aws":
        raise Refused(
            f"this is for clusters on AWS, and {spec.name} is on {spec.kind}",
            hint="docs/clouds.md and docs/autoscaler.md list what other clouds need",
        )
    return cloud


def machine_table(spec: ClusterSpec) -> MachineTable:
    cloud = cloud_of(spec)
    try:
        return load_table(spec.kind, cloud.machines)
    except BadTable as error:
        raise UsageError(f"{cloud.machines}: {error}") from None


def cost_of(spec: ClusterSpec) -> PlanCost:
    cloud = cloud_of(spec)
    table = machine_table(spec)
    unknown = [pool.type for pool in cloud.pools if pool.type not in table.machines]
    if unknown:  # the table changed since the cluster was made
        raise UsageError(f"{unknown[0]} is not in the table of machine types", hint="machines: FILE adds types to it")
    return plan_cost(cloud, table, CHARGES[spec.kind](cloud))


def show_cloud(spec: ClusterSpec) -> None:
    """Print what the file asks for: fields, pools, costs."""
    cloud, table = cloud_of(spec), machine_table(spec)
    network = cloud.network
    place = None
    if spec.kind == "aws":
        place = f"new, {network.cidr}, {network.nodes} nodes" if network.is_new else f"{network.vpc}, existing"
    storage = None if cloud.storage is None else f"EFS, {cloud.storage.efs}"
    print_fields(
        [
            ("cluster", spec.name),
            ("kind", spec.kind),
            ("region", cloud.region),
            ("kubernetes", cloud.version),
            ("network", place),
            ("storage", storage),
            ("add-ons", ", ".join(spec.addons)),
            ("tags", ", ".join(f"{key}={value}" for key, value in cloud.tags)),
        ]
    )
    print()
    rows = [
        (
            pool.name,
            pool.type,
            table.machines[pool.type].text,
            str(pool.count) if pool.min == pool.max else f"{pool.count} ({pool.min} to {pool.max})",
            "spot" if pool.spot else "on demand",
            ",".join(pool.zones) or "all",
        )
        for pool in cloud.pools
    ]
    print_table(("POOL", "TYPE", "MACHINE", "COUNT", "BOUGHT", "ZONES"), rows)
    print()
    print_cost(cost_of(spec))


def print_cost(cost: PlanCost) -> None:
    rows = [
        (line.item, line.count, *(money(price) if price else None for price in (line.price, line.per_hour)), line.note)
        for line in cost.lines
    ]
    print_table(("COST", "COUNT", "USD/HOUR EACH", "USD/HOUR", "NOTE"), rows)
    print(cost.text)
    print(cost.note)
