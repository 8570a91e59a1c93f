"""What the fields of a cluster file of a cloud must be together: pools, machine types, zones. Goes on where fields are
missing: every mistake is reported at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longboat.clouds.machine_types import BadTable, MachineTable, load_table, shipped_table
from longboat.clusters.cloud.spec import CloudNetwork, CloudPool
from longboat.clusters.fields.consistency import FieldMistakes, resolved
from longboat.core.words import nearest
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode

Values = Mapping[str, Any]
_GRAVITON = re.compile(r"[a-z]+[0-9]+g[a-z]*\.")
"""Families with ARM processors: a letter g after the generation."""


class CloudFileCheck(FieldMistakes):
    """A cluster file of a cloud with the values that could be read, for rules across fields."""

    def __init__(self, values: Values, root: YamlNode, mistakes: Mistakes) -> None:
        super().__init__(root, mistakes)
        self.values = values
        listed = enumerate(values.get("pools") or ())
        self.pools: list[tuple[int, Values]] = [(index, pool) for index, pool in listed if isinstance(pool, Mapping)]
        self.network: CloudNetwork = values.get("network") or CloudNetwork()

    def check(self, folder: Path) -> MachineTable:
        table = self.table(folder)
        self.check_names()
        for index, pool in self.pools:
            self.check_machine(index, pool, table)
            self.check_sizes(index, pool)
        self.check_cloud()
        if "autoscaler" in (self.values.get("addons") or ()):
            self.check_autoscaler()
        return table

    def check_cloud(self) -> None:
        """What only one cloud asks for."""

    def check_autoscaler(self) -> None:
        if "image" not in self.values:
            hint = f"image: IMAGE; see deploy/Dockerfile, with longboat[{self.values.get('kind', 'aws')}]"
            self.wrong(("addons",), "autoscaler needs an image that has Longboat", hint=hint)
        if self.pools and not any(sizes_of(pool)[0] >= 1 and not pool.get("taints") for _, pool in self.pools):
            types = {"aws": "m5.large", "azure": "Standard_D4s_v5", "gcp": "e2-standard-4"}
            hint = f"{{name: system, type: {types[self.values.get('kind', 'aws')]}, count: 1}}"
            self.wrong(("pools",), "the autoscaler needs a pool without taints that is never empty", hint=hint)

    def table(self, folder: Path) -> MachineTable:
        file = self.values.get("machines")
        try:
            return load_table(self.values.get("kind", "aws"), resolved(file, folder) if file else None)
        except BadTable as error:
            self.wrong(("machines",), f"{file}: {error}")
            return shipped_table(self.values.get("kind", "aws"))

    def check_names(self) -> None:
        """Report pools of one name, also where only their dashes differ: the stack knows letters and digits."""
        names = Counter(logical_name(pool["name"]) for _, pool in self.pools if "name" in pool)
        seen: dict[str, int] = {}
        for index, pool in self.pools:
            key = logical_name(pool.get("name", ""))
            if names[key] > 1 and (first := seen.setdefault(key, index)) != index:
                is_same = pool["name"] == dict(self.pools)[first]["name"]
                reason = f"pools.{first} has the same name{'' if is_same else ', but for dashes'}"
                self.wrong(("pools", index, "name"), reason)

    def check_machine(self, index: int, pool: Values, table: MachineTable) -> None:
        name = pool.get("type")
        if name is None:
            return
        machine = table.machines.get(name)
        if machine is None:
            near = nearest(name, table.machines)
            did = f"; did you mean {near[0]}?" if near else ""
            hint = "machines: FILE adds types to the table; docs/clouds.md has its columns"
            self.wrong(("pools", index, "type"), f"{name} is not in the table of machine types{did}", hint=hint)
        elif pool.get("gpu") and not machine.gpus:
            near = [each.type for each in table.machines.values() if each.gpus][:3]
            hint = f"machine types with GPUs: {', '.join(near)}, ..."
            self.wrong(("pools", index, "type"), f"{name} has no GPUs, and the pool asks for them", hint=hint)

    def check_sizes(self, index: int, pool: Values) -> None:
        least, count, most = sizes_of(pool)
        if "min" in pool and least > most:
            self.wrong(("pools", index, "min"), f"min ({least}) is more than max ({most})")
        elif count < least:
            self.wrong(("pools", index, "count"), f"count ({count}) is less than min ({least})")
        elif count > most:
            self.wrong(("pools", index, "count"), f"count ({count}) is more than max ({most})")


class AwsFileCheck(CloudFileCheck):
    def check_cloud(self) -> None:
        for index, pool in self.pools:
            self.check_placement(index, pool)
        self.check_zones()

    def check_placement(self, index: int, pool: Values) -> None:
        if pool.get("placement_group") and len(pool.get("zones") or ()) != 1:
            self.wrong(
                ("pools", index, "placement_group"),
                "a placement group lies in one zone, and the pool has several",
                hint="zones: [us-east-1a], one of them",
            )
        if pool.get("reservation") and pool.get("spot"):
            self.wrong(("pools", index, "reservation"), "a reservation is not for spot machines")

    def check_zones(self) -> None:
        region = self.values.get("region", "")
        known = tuple(zone for zone, _ in self.network.subnets) or self.network.zones
        key = "subnets" if self.network.subnets else "zones"
        for zone in known:
            if zone and region and zone[:-1] != region:
                self.wrong(("network", key), f"{zone} is not a zone of {region}")
        if self.network.subnets and len(self.network.subnets) < 2:
            self.wrong(("network", "subnets"), "EKS needs subnets in two zones")
        named = {zone for _, pool in self.pools for zone in pool.get("zones") or () if zone}
        for index, pool in self.pools:
            for zone in pool.get("zones") or ():
                if zone and region and zone[:-1] != region:
                    self.wrong(("pools", index, "zones"), f"{zone} is not a zone of {region}")
                elif zone and known and zone not in known:
                    self.wrong(("pools", index, "zones"), f"{zone} is not among network.{key}: {', '.join(known)}")
        given = self.root.value if isinstance(self.root.value, dict) else {}
        has_network = "network" in self.values or "network" not in given  # not one that could not be read
        if len(named) == 1 and not known and has_network:
            zone = min(named)
            hint = f"network: {{zones: [{zone}, {zone[:-1]}{'a' if zone[-1] != 'a' else 'b'}]}}"
            self.wrong(("network",), "EKS needs two zones, and the pools name only one", hint=hint)


class AzureFileCheck(CloudFileCheck):
    def check_cloud(self) -> None:
        """AKS keeps its own pods on a pool that is always there."""
        able = [
            pool for _, pool in self.pools if not pool.get("spot") and not pool.get("taints") and sizes_of(pool)[0] >= 1
        ]
        if self.pools and not able:
            self.wrong(
                ("pools",),
                "AKS needs a pool on demand without taints that is never empty, for its own pods",
                hint="{name: system, type: Standard_D4s_v5, count: 1}",
            )


class GcpFileCheck(CloudFileCheck):
    def check_cloud(self) -> None:
        region = self.values.get("region", "")
        for index, pool in self.pools:
            for zone in pool.get("zones") or ():
                if zone and region and zone.rpartition("-")[0] != region:
                    self.wrong(("pools", index, "zones"), f"{zone} is not a zone of {region}")
            if pool.get("flex_start") and (pool.get("spot") or pool.get("reservation")):
                self.wrong(("pools", index, "flex_start"), "flex_start is neither for spot machines nor reservations")
            if pool.get("flex_start") and sizes_of(pool)[:2] != (0, 0):
                hint = "min: 0, max: 4"
                self.wrong(("pools", index, "flex_start"), "a pool with flex_start begins with no machines", hint=hint)
        for key, value in (self.values.get("tags") or {}).items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) or not re.fullmatch(r"[a-z0-9_-]{0,63}", value or ""):
                self.wrong(
                    ("tags", key), "labels of Google Cloud are lower-case letters, digits, - and _, 63 at most of each"
                )


def logical_name(name: str) -> str:
    """`gpu-large` as GpuLarge: names inside a stack have letters and digits only."""
    return "".join(part.capitalize() for part in name.split("-"))


def sizes_of(pool: Values) -> tuple[int, int, int]:
    """Fewest, first and most machines, with their defaults."""
    count = pool.get("count", pool.get("min", 1))
    return pool.get("min", count), count, pool.get("max", max(count, 1))


def architecture_of(machine: str) -> str:
    return "arm64" if _GRAVITON.match(machine) else "x86_64"


def make_pool(values: Values, table: MachineTable) -> CloudPool:
    least, count, most = sizes_of(values)
    machine = table.machines[values["type"]]
    disk = {"disk_gib": -(-values["disk"] // (1 << 30))} if "disk" in values else {}
    return CloudPool(
        name=values["name"], type=values["type"], min=least, count=count, max=most,
        gpus=machine.gpus if values.get("gpu", True) else 0,
        architecture=architecture_of(machine.type),
        labels=tuple(values.get("labels", {}).items()),
        **{key: values[key] for key in ("spot", "zones", "taints", "placement_group", "reservation", "flex_start")
           if key in values},
        **disk,
    )  # fmt: skip
