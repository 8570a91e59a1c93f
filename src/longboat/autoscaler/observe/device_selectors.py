"""Device selectors of dynamic resource allocation: the CEL expressions that compare a device's driver and attributes.

Comparisons for equality joined by `&&` are understood, which is what device classes are made of. Everything else is
not judged: `conditions_of` says None then, and whoever asks says so instead of guessing. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from longboat.core.jobs import Value

Body = Mapping[str, Any]
Condition = tuple[str, str, str]
"""Domain (empty: the driver), attribute, value as text."""
Conditions = frozenset[Condition]

_LITERAL = r"""(?P<value>"[^"\\]*"|'[^'\\]*'|true|false|-?[0-9]+)"""
_DRIVER = re.compile(rf"device\.driver\s*==\s*{_LITERAL}")
_ATTRIBUTE = re.compile(
    r"""device\.attributes\[(?P<domain>"[^"\\]+"|'[^'\\]+')\]\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*==\s*""" + _LITERAL
)


class Device(NamedTuple):
    """A device of a ResourceSlice, as far as selectors look at it."""

    driver: str
    attributes: Mapping[str, str]  # "domain/name" -> value as text
    is_partition: bool = False  # shares counters with others: how many there are depends on which are taken


def conditions_of(selectors: Iterable[Body] | None) -> Conditions | None:
    """All that the expressions ask for; None: one of them cannot be judged."""
    conditions: set[Condition] = set()
    for selector in selectors or ():
        expression = str((selector.get("cel") or {}).get("expression", ""))
        for part in expression.split("&&"):
            condition = _condition(part)
            if condition is None:
                return None
            conditions.add(condition)
    return frozenset(conditions)


def _condition(text: str) -> Condition | None:
    text = text.strip()
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    if match := _DRIVER.fullmatch(text):
        return ("", "driver", _unquoted(match["value"]))
    if match := _ATTRIBUTE.fullmatch(text):
        return (_unquoted(match["domain"]), match["name"], _unquoted(match["value"]))
    return None


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in "\"'" else text


def matches(device: Device, conditions: Conditions) -> bool:
    for domain, name, value in conditions:
        actual = device.driver if not domain else device.attributes.get(f"{domain}/{name}")
        if actual != value:
            return False
    return True


class ConditionIndex:
    """Sets of conditions with their names, each found by its rarest condition: there may be thousands of both."""

    def __init__(self, names: Mapping[Conditions, str]) -> None:
        shares = Counter(condition for conditions in names for condition in conditions)
        self._always: list[str] = []  # of sets that ask for nothing
        self._found_by: dict[Condition, list[tuple[Conditions, str]]] = {}
        for conditions, name in names.items():
            if conditions:
                rarest = min(conditions, key=lambda condition: (shares[condition], condition))
                self._found_by.setdefault(rarest, []).append((conditions, name))
            else:
                self._always.append(name)

    def within(self, facts: Conditions) -> list[str]:
        """Names of all sets that these conditions meet."""
        pairs = [pair for fact in facts for pair in self._found_by.get(fact, ())]
        return [*self._always, *(name for conditions, name in pairs if conditions <= facts)]

    def of_device(self, device: Device) -> list[str]:
        """Names of all sets that the device meets."""
        facts: set[Condition] = {("", "driver", device.driver)}
        for full_name, value in device.attributes.items():
            domain, _, name = full_name.rpartition("/")
            if domain:
                facts.add((domain, name, value))
        return self.within(frozenset(facts))


def device_of(body: Body, driver: str) -> Device | None:
    """From a slice, in any version of the API; None: it has a taint that keeps claims away."""
    inner = body.get("basic") or body  # v1beta1 wraps what later versions state directly
    if any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in inner.get("taints") or ()):
        return None
    attributes = {
        name if "/" in name else f"{driver}/{name}": _text(value)
        for name, value in (inner.get("attributes") or {}).items()
    }
    return Device(driver, attributes, bool(inner.get("consumesCounters")))


def _text(value: Any) -> str:
    """The value of an attribute, which names its type: {"string": "a"}, {"bool": true}, ..."""
    inner = next(iter(value.values()), "") if isinstance(value, Mapping) else value
    return str(inner).lower() if isinstance(inner, bool) else str(inner)


class DeviceRequest(Value, frozen=True):
    """A request of a ResourceClaim: so many devices of a class that meet the conditions."""

    device_class: str
    count: int
    conditions: Conditions = frozenset()


def requests_of(spec: Body) -> list[DeviceRequest] | str:
    """What a claim asks for, from the spec of any version of the API; or why that cannot be judged."""
    devices = spec.get("devices") or {}
    requests: list[DeviceRequest] = []
    for body in devices.get("requests") or ():
        exactly = body.get("exactly") or body
        name, device_class = body.get("name", ""), exactly.get("deviceClassName")
        if body.get("firstAvailable") or not device_class:
            return f"request {name} has alternatives (firstAvailable)"
        if exactly.get("adminAccess"):
            continue  # looks at devices that others have, and takes none
        if exactly.get("allocationMode", "ExactCount") != "ExactCount":
            return f"request {name} asks for all devices of a node (allocationMode {exactly['allocationMode']})"
        if exactly.get("capacity"):
            return f"request {name} asks for a part of a device (capacity)"
        conditions = conditions_of(exactly.get("selectors"))
        if conditions is None:
            return f"request {name} selects devices by an expression that is more than a comparison"
        count = int(exactly.get("count") or 1)
        requests.append(DeviceRequest(device_class=str(device_class), count=count, conditions=conditions))
    if devices.get("constraints") and sum(request.count for request in requests) > 1:
        return "it wants devices that match each other (constraints)"
    return requests
