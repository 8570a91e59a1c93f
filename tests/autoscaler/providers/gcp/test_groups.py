"""Groups as values: names of machines, notes about orders, states."""

from __future__ import annotations

import re
from typing import Any

import pytest

from longboat.autoscaler.providers.gcp.groups import (
    MOST_CANCELLED,
    cancelled_of,
    machine_names,
    read_machine,
    read_pool,
    with_cancelled,
)


@pytest.mark.parametrize("base", ["gke-lab-gpu-12345678", "gke-" + "x" * 40 + "--" + "y" * 40])
def test_names_are_of_their_order_and_short_enough(base: str) -> None:
    names = machine_names(base, "0123456789abcdef", 1000)
    assert len(set(names)) == 1000 and names[:3] == machine_names(base, "0123456789abcdef", 3)
    for name in names:
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)
        assert read_machine({"instance": f"x/{name}"}, "a").token == "0123456789abcdef"


@pytest.mark.parametrize("name", ["gke-lab-gpu-12345678-x7k2", "gke-lb-gpu-12345678-0123", "gke-lab-lbx-grp"])
def test_machines_that_gke_made_are_of_no_order(name: str) -> None:
    assert read_machine({"instance": f"x/{name}"}, "a").token is None


ERRORS = {"errors": {"errors": [{"code": "QUOTA_EXCEEDED", "message": "a\n b"}]}}


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"currentAction": "CREATING"}, "pending"),
        ({"currentAction": "CREATING", "lastAttempt": ERRORS}, "failed"),
        ({"currentAction": "VERIFYING", "instanceStatus": "RUNNING"}, "running"),
        ({"currentAction": "NONE", "instanceStatus": "RUNNING", "lastAttempt": ERRORS}, "running"),
        ({"currentAction": "DELETING", "instanceStatus": "RUNNING"}, "stopping"),
        ({"currentAction": "NONE", "instanceStatus": "TERMINATED"}, "stopping"),
        ({"currentAction": "RECREATING", "instanceStatus": "STAGING"}, "pending"),
    ],
)
def test_states(body: dict[str, Any], state: str) -> None:
    machine = read_machine({"instance": "x/n", **body}, "a")
    assert machine.state == state and (machine.message == "a b") == (state == "failed")


def test_notes_have_a_limit_and_leave_other_ports() -> None:
    ports = with_cancelled([{"name": "http", "port": 80}], [f"t{number}" for number in range(40)])
    assert ports[0] == {"name": "http", "port": 80} and len(cancelled_of(ports)) == MOST_CANCELLED
    assert cancelled_of(with_cancelled(ports, ["t30"]))[-2:] == ("t39", "t30")


def test_what_gke_leaves_out_has_its_usual_meaning() -> None:
    pool = read_pool({"name": "p", "config": {"machineType": "e2-standard-4"}})
    assert (pool.pool, pool.groups, pool.min, pool.max, pool.pods, pool.is_managed) == (None, (), 0, None, 110, False)
