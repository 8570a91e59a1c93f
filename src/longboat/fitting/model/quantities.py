"""Kubernetes quantities as whole numbers: thousandths for cpu, units for everything else. Pure and exact.

Every notation is read: `100m`, `1.5`, `.5`, `1e3`, `1E` (exa), `1E3`, `n u m k M G T P E`, `Ki` to `Ei`. What is finer
than the whole number is rounded up, for requests and for what a node has alike, because the scheduler does the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from longboat.core.errors import UsageError
from longboat.core.resources import show_quantity

Amounts = tuple[tuple[str, int], ...]
"""Resources with their amounts, sorted by name, without zeros."""

CPU, MEMORY, DISK, PODS = "cpu", "memory", "ephemeral-storage", "pods"

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,3}))?")
_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MAX_TEXT = 64  # no quantity is longer
_MAX_KNOWN = 100_000  # texts remembered in a process that lives for months
_NATIVE = ("hugepages-", "attachable-volumes-")
_OTHER_GPUS = ("tpu", "neuron", "gaudi", "npu", "dcu", "mlu", "xpu", "ascend")

_known: dict[tuple[str | int | float, bool], int] = {}


def amount(resource: str, quantity: str | int | float) -> int:
    """The quantity of this resource as a whole number: thousandths for cpu, units (bytes, pods, devices) for others."""
    key = (quantity, resource == CPU)
    value = _known.get(key)
    if value is None:
        if len(_known) > _MAX_KNOWN:
            _known.clear()
        value = _known[key] = _scaled(str(quantity), 3 if key[1] else 0)
    return value


def _scaled(text: str, power: int) -> int:
    """The number times 10 ** power, rounded up."""
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None or not (match[2] or match[3]):
        raise UsageError(
            f"{text[:_MAX_TEXT]!r} is no Kubernetes quantity",
            hint="write a number with a unit: 500m, 2, 1.5, 64Gi, 1e3",
        )
    sign, whole, fraction, binary, decimal, exponent = match.groups()
    digits = int((whole or "") + (fraction or "")) * (_BINARY[binary] if binary else 1)
    power += (_DECIMAL[decimal] if decimal else int(exponent or 0)) - len(fraction or "")
    value = digits * 10**power if power >= 0 else 0
    if power < 0:
        value = -(-digits // 10**-power) if sign != "-" else digits // 10**-power
    return -value if sign == "-" else value


def amounts(quantities: Mapping[str, str | int | float] | None) -> Amounts:
    """All resources of a mapping such as `resources.requests` or `allocatable`. Less than nothing is nothing."""
    if not quantities:
        return ()
    pairs = [(name, amount(name, quantity)) for name, quantity in quantities.items()]
    return tuple(sorted(pair for pair in pairs if pair[1] > 0))


def total(parts: Iterable[Amounts]) -> Amounts:
    """The sum, resource by resource."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, count in part:
            sums[name] = sums.get(name, 0) + count
    return tuple(sorted(sums.items()))


def largest(first: Amounts, other: Amounts) -> Amounts:
    """The larger of both, resource by resource."""
    most = dict(first)
    for name, count in other:
        if count > most.get(name, 0):
            most[name] = count
    return tuple(sorted(most.items()))


def is_scarce(resource: str) -> bool:
    """Whether it is a device (a GPU of any name, MIG, EFA, ...): what is packed first and kept for who needs it."""
    return "/" in resource and not resource.startswith(_NATIVE)


def is_gpu(resource: str) -> bool:
    """Whether the resource is a GPU, a part of one, or the like of one, by the names that device plugins give."""
    if not is_scarce(resource):
        return False
    name = resource.rpartition("/")[2].lower()
    is_other = name.rstrip("0123456789") in _OTHER_GPUS
    return "gpu" in name or name.startswith("mig-") or resource.startswith("gpu.") or is_other


def scarcity(resource: str) -> tuple[int, str]:
    """Sorts resources: GPUs, other devices, then memory, cpu and the rest."""
    if is_scarce(resource):
        return (0 if is_gpu(resource) else 1, resource)
    return ({MEMORY: 2, CPU: 3}.get(resource, 4), resource)


def show(resource: str, count: int) -> str:
    """For people: `2 CPUs`, `16Gi of memory`, `8 nvidia.com/gpu`."""
    if resource == CPU:
        return f"{count / 1000:g} CPU{'' if count == 1000 else 's'}"
    if resource in (MEMORY, DISK) or resource.startswith("hugepages-"):
        return f"{show_number(resource, count)} of {resource}"
    return f"{count} {resource}"


def show_number(resource: str, count: int) -> str:
    """The number alone, as `show` writes it."""
    if resource == CPU:
        return f"{count / 1000:g}"
    if resource in (MEMORY, DISK) or resource.startswith("hugepages-"):
        return show_quantity(count) if count else "0"
    return str(count)


def show_asked(resource: str, count: int) -> str:
    """`2 GPUs` where the resource is one; else as `show`."""
    is_slice = resource.rpartition("/")[2].startswith("mig-")
    if is_gpu(resource) and not is_slice:
        return f"{count} GPU{'' if count == 1 else 's'}"
    return show(resource, count)
