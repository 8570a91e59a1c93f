"""Selectors of devices: which expressions are understood, and what of a claim is not judged."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.autoscaler.observe.device_selectors import (
    DeviceRequest,
    conditions_of,
    device_of,
    matches,
    requests_of,
)

DRIVER = "gpu.example.com"


def selectors(*expressions: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}} for expression in expressions]


@pytest.mark.parametrize(
    "expression",
    [
        f"device.driver == '{DRIVER}'",
        f'device.driver=="{DRIVER}"',
        f"(device.driver == '{DRIVER}') && (device.attributes['{DRIVER}'].type == 'gpu')",
        f"device.attributes['{DRIVER}'].memory == 80",
        f"device.attributes['{DRIVER}'].healthy == true",
        "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:01'",
    ],
)
def test_comparisons_are_understood(expression: str) -> None:
    body = {
        "attributes": {
            "type": {"string": "gpu"},
            "memory": {"int": 80},
            "healthy": {"bool": True},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"},
        }
    }
    conditions = conditions_of(selectors(expression))
    assert conditions
    for written in (body, {"basic": body}):  # v1, and as v1beta1 wraps it
        device = device_of(written, DRIVER)
        assert device is not None and matches(device, conditions)
    other = device_of({}, "other")
    assert other is not None and not matches(other, conditions)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "device.driver == 'a' || device.driver == 'b'",
        "device.driver != 'a'",
        "device.driver.startsWith('a')",
        "device.capacity['a'].memory.compareTo(quantity('80Gi')) >= 0",
        "device.attributes['a'].model.lowerAscii().matches('h100')",
        "'a' in device.attributes",
        "device.driver == 'a && b'",
        "!(device.driver == 'a')",
        "device.attributes['a'].x == 'b' ? true : false",
    ],
)
def test_everything_else_is_not_judged(expression: str) -> None:
    assert conditions_of(selectors(expression)) is None


def test_all_selectors_must_hold_and_none_holds_always() -> None:
    both = conditions_of(selectors("device.driver == 'a'", "device.attributes['a'].x == 'b'"))
    assert both == frozenset({("", "driver", "a"), ("a", "x", "b")})
    assert conditions_of(None) == conditions_of([]) == frozenset()


def test_both_ways_to_write_a_request_are_read() -> None:
    wanted = {"deviceClassName": "c", "count": 2}
    new = requests_of({"devices": {"requests": [{"name": "r", "exactly": wanted}]}})
    old = requests_of({"devices": {"requests": [{"name": "r", **wanted}]}})
    assert new == old == [DeviceRequest(device_class="c", count=2)]
    assert requests_of({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}) == [
        DeviceRequest(device_class="c", count=1)
    ]
    assert requests_of({}) == []


@pytest.mark.parametrize(
    ("request_body", "reason"),
    [
        ({"firstAvailable": [{"deviceClassName": "c"}]}, "alternatives"),
        ({"exactly": {"deviceClassName": "c", "allocationMode": "All"}}, "all devices"),
        ({"exactly": {"deviceClassName": "c", "capacity": {"requests": {"memory": "8Gi"}}}}, "part of a device"),
        ({"exactly": {"deviceClassName": "c", "selectors": selectors("true")}}, "more than a comparison"),
    ],
)
def test_what_is_not_judged_is_said(request_body: dict[str, Any], reason: str) -> None:
    found = requests_of({"devices": {"requests": [{"name": "r", **request_body}]}})
    assert isinstance(found, str) and reason in found


def test_a_device_with_a_taint_is_not_there() -> None:
    assert device_of({"taints": [{"effect": "NoExecute"}]}, DRIVER) is None
    assert device_of({"taints": [{"effect": "None"}]}, DRIVER) is not None
