"""Whether what an add-on deployed works, of what the cluster says of it."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.clusters.addons.observe import condition_fault, is_spread


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ([], "not Available"),
        ([{"type": "Other", "status": "True"}], "not Available"),
        ([{"type": "Available", "status": "True", "message": "all checks passed"}], ""),
        ([{"type": "Available", "status": "False", "message": "no endpoints"}], "not Available: no endpoints"),
        ([{"type": "Available", "status": "Unknown", "reason": "Waiting"}], "not Available: Waiting"),
    ],
)
def test_conditions(conditions: list[dict[str, str]], reason: str) -> None:
    assert condition_fault({"status": {"conditions": conditions}}, "Available") == reason


def test_an_object_without_a_status_does_not_work_yet() -> None:
    assert condition_fault({}, "Established") == "not Established"
    assert not is_spread({"metadata": {"generation": 1}})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"numberAvailable": 1}, False),
        ({"updatedNumberScheduled": 1}, False),
        ({"observedGeneration": 1}, False),
        ({"desiredNumberScheduled": 0, "numberAvailable": 0, "updatedNumberScheduled": 0}, True),
    ],
)
def test_a_daemon_set_is_ready_on_every_node(changes: dict[str, Any], expected: bool) -> None:
    status = {"observedGeneration": 2, "desiredNumberScheduled": 2, "numberAvailable": 2, "updatedNumberScheduled": 2}
    assert is_spread({"metadata": {"generation": 2}, "status": {**status, **changes}}) is expected
