"""Whether a region can have the cluster: zones, machine types in them, versions, quotas. Pure; asked before anything is
made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.aws.templates.network_template import zone_count, zone_names
from longboat.clusters.cloud.spec import CloudPool, CloudSpec
from longboat.core.errors import Refused
from longboat.core.jobs import Value

NO_CONTROL_PLANE = {"use1-az3", "usw1-az2", "cac1-az3"}
"""Ids of zones in which EKS has no control plane; their names differ by account."""

QUOTAS = {
    ("p", False): ("L-417A185B", "Running On-Demand P instances"),
    ("g", False): ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("", False): ("L-1216C47A", "Running On-Demand Standard instances"),
    ("p", True): ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("g", True): ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("", True): ("L-34B43A08", "All Standard Spot Instance Requests"),
    ("p5", True): ("L-C4BD4855", "All P5 Spot Instance Requests"),
}
"""Family and whether spot -> code and name of the quota, counted in virtual CPUs."""


_STANDARD = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
_LETTERS = {"p": "p", "g": "g", "vt": "g", **dict.fromkeys(_STANDARD, "")}
"""Letters of a family -> its key in QUOTAS. All others, accelerators and large memory, have quotas of their own."""


class RegionView(Value, frozen=True):
    """What a region has, as it was seen."""

    zones: tuple[tuple[str, str], ...]
    """Name and id."""
    offers: frozenset[tuple[str, str]] | None = None
    """Machine type and zone; none: it may not be asked."""
    versions: tuple[str, ...] = ()
    """Of Kubernetes; none: it may not be asked."""


def check_version(spec: CloudSpec, region: RegionView) -> None:
    if region.versions and spec.version not in region.versions:
        raise Refused(
            f"EKS has no Kubernetes {spec.version} in {spec.region}",
            hint=f"version: one of {', '.join(region.versions)}",
        )


def choose_zones(spec: CloudSpec, region: RegionView) -> tuple[str, ...]:
    """Zones for a new network: those of the file, else those that offer most of the machine types. Raises Refused where
    a pool's machines are not to be had in its zones.
    """
    names = {name for name, _ in region.zones}
    wanted = zone_names(spec) if spec.network.is_new else tuple(zone for zone, _ in spec.network.subnets)
    unknown = [zone for zone in wanted if zone not in names]
    if unknown:
        raise Refused(
            f"{unknown[0]} is no zone of the account in {spec.region}", hint=f"zones: {', '.join(sorted(names))}"
        )
    zones = wanted or _best(spec, region)
    for pool in spec.pools:
        _check_offers(pool, pool.zones or zones, region)
    return zones


def _best(spec: CloudSpec, region: RegionView) -> tuple[str, ...]:
    offers = region.offers or frozenset()
    free = {pool.type for pool in spec.pools}
    usable = [name for name, id in region.zones if id not in NO_CONTROL_PLANE]
    usable.sort(key=lambda zone: (-sum((kind, zone) in offers for kind in free), zone))
    chosen = tuple(sorted(usable[: zone_count(spec)]))
    if len(chosen) < zone_count(spec):
        raise Refused(
            f"{spec.region} has {len(chosen)} usable zones, and {zone_count(spec)} are needed",
            hint=f"network: {{zones: [{', '.join(chosen)}]}}",
        )
    return chosen


def _check_offers(pool: CloudPool, zones: tuple[str, ...], region: RegionView) -> None:
    if region.offers is None or any((pool.type, zone) in region.offers for zone in zones):
        return
    having = sorted(zone for kind, zone in region.offers if kind == pool.type)
    text = f"the zones {', '.join(having)} have them" if having else "no zone of the region has them"
    raise Refused(
        f"pool {pool.name}: {', '.join(zones)} offer no {pool.type}: {text}",
        hint="network: {zones: [...]} names zones" if having else "another type, or another region",
    )


def quota_of(machine: str, *, spot: bool) -> tuple[str, str] | None:
    """Code and name of the quota that machines of this type count towards; None: it is none of these."""
    letters = re.match("[a-z]*", machine)
    family = _LETTERS.get(letters[0] if letters else "")
    if family is None:
        return None
    if machine.startswith("p5") and spot:
        return QUOTAS["p5", True]
    return QUOTAS[family, spot]


def quota_problems(
    spec: CloudSpec, table: MachineTable, quotas: Mapping[str, float], used: Mapping[str, float]
) -> tuple[list[str], list[str]]:
    """What the account's quotas do not allow: with the machines that are asked for now, and with every pool at its
    largest. `used`: virtual CPUs that run already, by the quota's code."""
    needs: dict[tuple[str, str], list[int]] = {}
    for pool in spec.pools:
        cpus, quota = table.machines[pool.type].cpus, quota_of(pool.type, spot=pool.spot)
        if quota is None:
            continue
        need = needs.setdefault(quota, [0, 0])
        need[0] += pool.count * cpus
        need[1] += pool.max * cpus
    now: list[str] = []
    later: list[str] = []
    for (code, name), (count, most) in needs.items():
        left = quotas.get(code, math.inf) - used.get(code, 0.0)
        is_now = 0 < count > left
        if is_now or most > left:
            number = count if is_now else most
            taken = f", {used[code]:g} are in use" if used.get(code) else ""
            text = f"quota {code} ({name}): {quotas[code]:g} CPUs are allowed{taken}, {number} are needed"
            (now if is_now else later).append(text)
    return now, later
