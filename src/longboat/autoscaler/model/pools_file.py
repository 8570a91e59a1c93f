"""pools.yaml to Pools and Settings, every mistake with its line. Text to values only; what they mean is `decide`'s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from longboat.autoscaler.model.provider_settings import (
    PROVIDERS,
    CloudSettings,
    ExecSettings,
    KwokSettings,
    ProviderSettings,
)
from longboat.autoscaler.model.snapshot import POOL_LABEL, AutoscalerSettings, Pool, ResourceLimits
from longboat.core import resources
from longboat.core.errors import LongboatError
from longboat.core.jobs import Value
from longboat.fitting.model.nodes import NodeShape, Taint
from longboat.fitting.model.quantities import CPU, DISK, MEMORY, PODS, amount
from longboat.specs.fields.composites import Field, ListOf, MapOf, Shape
from longboat.specs.fields.labels import KEY, LABEL, taint_field
from longboat.specs.fields.scalars import FieldPath, Flag, Quantified, Text, WholeNumber, duration, number_of
from longboat.specs.yaml.mapping_file import FileHints, read_mapping
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode

NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
LABEL_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
CLASS_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
DEFAULT_PODS = 110  # as the kubelet has it
UNSTATED = 1 << 60
"""Stands for a disk that nobody stated: every machine has one, and pods that ask for some of it are not turned away."""

_LARGE = 10**6  # beyond any machine or priority that is meant


class Number(Value, frozen=True):
    """A number that need not be whole."""

    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def read(self, node: YamlNode, at: FieldPath) -> float | None:
        value = number_of(node, at, self.expected)
        if value is None:
            return None
        if not self.low <= value <= self.high:
            at.wrong(node, self.expected)
            return None
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


class Quantity(Value, frozen=True):
    """A size in the notation of Kubernetes, or in that of a job file."""

    expected: str = resources.QUANTITY

    def read(self, node: YamlNode, at: FieldPath) -> int | None:
        size = read_bytes(str(node.value)) if isinstance(node.value, (str, int, float)) else None
        if size is None or isinstance(node.value, bool) or size < 0:
            at.wrong(node, self.expected)
            return None
        return size

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number"]}


def read_bytes(text: str) -> int | None:
    try:
        return amount(MEMORY, text)
    except LongboatError:
        pass
    try:
        return resources.parse_quantity(text)
    except ValueError:
        return None


def cpus(high: float) -> Quantified:
    return Quantified(
        expected=resources.CPUS,
        parse=resources.parse_cpus,
        pattern=resources.CPUS_PATTERN,
        low=0.001,
        high=high,
        limits=f"from 1m to {high:g}",
    )


TAINT = taint_field(Taint)

MACHINE = Shape(
    fields=(
        Field(name="cpus", kind=cpus(_LARGE), doc="CPUs that pods may use.", required=True),
        Field(name="memory", kind=Quantity(), doc="Memory that pods may use.", required=True),
        Field(name="gpus", kind=WholeNumber(high=1024), doc="GPUs.", default="0"),
        Field(name="gpu_resource", kind=KEY, doc="The name pods ask for them by.", default="nvidia.com/gpu"),
        Field(name="pods", kind=WholeNumber(low=1, high=10_000), doc="Pods at most.", default=str(DEFAULT_PODS)),
        Field(name="disk", kind=Quantity(), doc="Ephemeral storage.", default="enough"),
        Field(
            name="resources",
            kind=MapOf(item=Quantity(), what="resources", key=LABEL_KEY, key_expected="a resource such as vpc/efa"),
            doc="Other resources.",
        ),
        Field(
            name="labels",
            kind=MapOf(item=LABEL, what="labels", key=LABEL_KEY, key_expected="a label's key"),
            doc="Labels its nodes carry.",
        ),
        Field(
            name="devices",
            kind=MapOf(
                item=WholeNumber(high=1024), what="device classes", key=CLASS_NAME, key_expected="a DeviceClass"
            ),
            doc="Devices that pods claim (dynamic resource allocation), by DeviceClass.",
        ),
        Field(name="taints", kind=ListOf(item=TAINT, what="taints", single=False), doc="Taints its nodes carry."),
    ),
)


def make_pool(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Pool | None:
    if values.get("min", 0) > values["max"]:
        at.problem(node, f"min is {values['min']}, more than max, which is {values['max']}")
        return None
    if len(set(values.get("zones", ()))) < len(values.get("zones", ())):
        at.problem(node, "a zone is named twice")
        return None
    if values.get("zero_or_max") and values.get("min", 0) not in (0, values["max"]):
        at.problem(node, "a pool with zero_or_max has none or all of its machines: min must be 0 or max")
        return None
    if values.get("zero_or_max") and values.get("growth"):
        at.problem(node, "a pool with zero_or_max cannot grow machine by machine for elastic runs: leave growth out")
        return None
    return Pool(
        name=values["name"],
        machine=template_of(values["name"], values["machine"]),
        gpu_resource=values["machine"].get("gpu_resource", "nvidia.com/gpu"),
        devices=dict(values["machine"].get("devices", {})),
        boot_s=values.pop("boot", 300.0),
        growth_s=values.pop("growth", 0.0),
        **{key: value for key, value in values.items() if key not in ("name", "machine")},
    )


def template_of(pool: str, machine: dict[str, Any]) -> NodeShape:
    """The machine as a node that has just joined, empty."""
    allocatable = {name: int(count) for name, count in machine.get("resources", {}).items()}
    if CPU in allocatable:
        allocatable[CPU] *= 1000
    allocatable[CPU] = round(machine["cpus"] * 1000)
    allocatable[MEMORY] = machine["memory"]
    allocatable[PODS] = machine.get("pods", DEFAULT_PODS)
    allocatable[DISK] = machine.get("disk", UNSTATED)
    allocatable[machine.get("gpu_resource", "nvidia.com/gpu")] = machine.get("gpus", 0)
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **machine.get("labels", {})}
    taints = tuple(taint for taint in machine.get("taints", ()) if taint.effect != "PreferNoSchedule")
    return NodeShape(
        name=f"new machine of {pool}",
        labels={**labels, POOL_LABEL: pool},
        taints=taints,
        allocatable=tuple(sorted((name, count) for name, count in allocatable.items() if count)),
    )


_WORD = Text(expected="a short name", pattern=r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

POOL = Shape(
    fields=(
        Field(
            name="name",
            kind=Text(expected="lower-case letters, digits and dashes", pattern=NAME),
            doc="Name; its nodes carry the label longboat.dev/pool with it.",
            required=True,
        ),
        Field(name="machine", kind=MACHINE, doc="What one machine offers to pods.", required=True),
        Field(name="provider", kind=_WORD, doc="Who makes and deletes its machines.", default="kwok"),
        Field(name="min", kind=WholeNumber(high=100_000), doc="Machines at least.", default="0"),
        Field(name="max", kind=WholeNumber(high=100_000), doc="Machines at most.", required=True),
        Field(name="price", kind=Number(low=0, high=1e6), doc="Of one machine for an hour.", default="0"),
        Field(name="spot", kind=Flag(), doc="Machines that may be taken away.", default="false"),
        Field(name="boot", kind=duration(0), doc="From the order to the first pod.", default="5m"),
        Field(name="zones", kind=ListOf(item=_WORD, what="zones"), doc="Where; kept balanced.", default="[]"),
        Field(name="priority", kind=WholeNumber(low=-_LARGE, high=_LARGE), doc="Higher is taken first.", default="0"),
        Field(name="zero_or_max", kind=Flag(), doc="All of its machines or none.", default="false"),
        Field(
            name="growth",
            kind=duration(0),
            doc="How long a machine waits for an elastic run to grow; 0s: none is bought for that.",
            default="0s",
        ),
    ),
    build=make_pool,
)


def make_limits(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> ResourceLimits:
    millicpus = round(values["cpus"] * 1000) if "cpus" in values else None
    return ResourceLimits(cpus=millicpus, memory=values.get("memory"), gpus=values.get("gpus"))


LIMITS = Shape(
    fields=(
        Field(name="cpus", kind=cpus(1e9), doc="CPUs of all pools together."),
        Field(name="memory", kind=Quantity(), doc="Memory of all pools together."),
        Field(name="gpus", kind=WholeNumber(high=10**9), doc="GPUs of all pools together."),
    ),
    build=make_limits,
)

_SECONDS = {"idle": "idle_s", "backoff": "backoff_s", "backoff_max": "backoff_max_s"}


def make_settings(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> AutoscalerSettings:
    return AutoscalerSettings(**{_SECONDS.get(name, name): value for name, value in values.items()})


SETTINGS = Shape(
    fields=(
        Field(name="idle", kind=duration(0), doc="A machine idle for this long is removed.", default="10m"),
        Field(name="spare", kind=WholeNumber(high=100_000), doc="Empty machines kept in a pool in use.", default="0"),
        Field(
            name="over_provision", kind=WholeNumber(high=100_000), doc="Ordered on top where a pool grows.", default="0"
        ),
        Field(name="limits", kind=LIMITS, doc="What all pools together may have."),
        Field(name="max_shrink_per_loop", kind=WholeNumber(high=100_000), doc="Removals in one loop.", default="10"),
        Field(name="max_drains", kind=WholeNumber(high=100_000), doc="Nodes being drained at once.", default="1"),
        Field(
            name="expendable_below",
            kind=WholeNumber(low=-(2**31), high=2**31),
            doc="Pods of a lower priority neither cause growth nor hold a machine.",
            default="-10",
        ),
        Field(name="utilization", kind=Number(low=0, high=1), doc="Below it a node is under-utilized.", default="0.5"),
        Field(
            name="consolidate", kind=Flag(), doc="Move pods that survive it off under-utilized nodes.", default="true"
        ),
        Field(name="replace", kind=Flag(), doc="Exchange nodes for cheaper machines.", default="true"),
        Field(
            name="replace_saving",
            kind=Number(low=0, high=1),
            doc="Least saving of an exchange, a share.",
            default="0.2",
        ),
        Field(name="join_factor", kind=Number(low=1, high=100), doc="Boot times until a machine failed.", default="3"),
        Field(name="backoff", kind=duration(0), doc="Of a pool and zone after a refusal.", default="15m"),
        Field(name="backoff_max", kind=duration(0), doc="The longest backoff.", default="1h"),
    ),
    build=make_settings,
)

_POOLS = ListOf(item=POOL, what="pools", single=False)

FILE = Shape(
    fields=(
        Field(name="pools", kind=_POOLS, doc="The pools. May be left out with a provider that is a cloud."),
        Field(name="settings", kind=SETTINGS, doc="For all pools."),
        Field(name="providers", kind=PROVIDERS, doc="Who makes and deletes machines, by name."),
    ),
)


def read_pools(path: str | Path) -> tuple[tuple[Pool, ...], AutoscalerSettings]:
    """Pools, sorted by name, and settings. Raises JobError with all mistakes, or NotFound."""
    values = read_file(path)
    pools = [pool for pool in values.get("pools") or () if pool is not None]
    return tuple(sorted(pools, key=lambda pool: pool.name)), values.get("settings") or AutoscalerSettings()


def read_providers(path: str | Path) -> dict[str, ProviderSettings]:
    """Provider settings by name; commands start in the file's folder. `kwok` need not be named."""
    providers: dict[str, ProviderSettings] = {"kwok": KwokSettings()}
    folder = str(Path(path).resolve().parent)
    for name, settings in _providers(read_file(path)).items():
        providers[name] = (
            msgspec.structs.replace(settings, folder=folder) if isinstance(settings, ExecSettings) else settings
        )
    return providers


def read_file(path: str | Path) -> dict[str, Any]:
    """Everything in the file. Raises JobError with all mistakes, or NotFound."""
    mistakes = Mistakes()
    root = read_tree(Path(path), mistakes)
    mistakes.raise_if_any()
    assert root is not None
    values = FILE.read(root, FieldPath("", mistakes)) or {}
    pools = [pool for pool in values.get("pools") or () if pool is not None]
    names = [pool.name for pool in pools]
    if "pools" not in values and not any(isinstance(each, CloudSettings) for each in _providers(values).values()):
        mistakes.add(root.place, "", f'the field "pools" is missing: {_POOLS.expected}')
    for name in sorted({name for name in names if names.count(name) > 1}):
        mistakes.add(root.place, "pools", f'two pools have the name "{name}"')
    mistakes.raise_if_any()
    file: dict[str, Any] = values
    return file


def _providers(values: dict[str, Any]) -> dict[str, Any]:
    return values.get("providers") or {}


def read_tree(path: Path, mistakes: Mistakes) -> YamlNode | None:
    begins = "it begins like this: `pools: [{name: a100, max: 10, machine: ...}]`"
    return read_mapping(path, mistakes, FileHints(begins, missing="--pools names the file with your pools"))
