"""What the autoscaler tells everybody: numbers of pools and machines that boot, and no names of runs."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.plan import PendingItem, ScalingAction
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot, Order, Pool, SeenNode
from longboat.autoscaler.model.turn import ActionResult, LoopTurn
from longboat.autoscaler.report import status
from longboat.autoscaler.report.status import DETAILS, NAME, Reporter, public, report_of
from longboat.engines.kubernetes.gate.node_usage import SILENT_S, observe_upcoming
from longboat.fitting.model.nodes import NodeShape
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden

NOW = 10_000.0
POOL = Pool(
    name="h100",
    machine=NodeShape(name="h100", labels={"longboat.dev/pool": "h100"}, allocatable=(("nvidia.com/gpu", 8),)),
    max=4,
    boot_s=200.0,
)


def turn(now: float) -> LoopTurn:
    joined = SeenNode(shape=NodeShape(name="n1", labels=dict(POOL.machine.labels)), created=NOW - 90.0, is_ready=False)
    orders = (Order(pool="h100", machine="m2", asked=NOW - 50.0, gang="team/secret-name"),)
    snapshot = ClusterSnapshot(nodes=(joined,), pools=(POOL,), orders=orders)
    return LoopTurn(now=now, snapshot=snapshot, plan=decide(snapshot, AutoscalerSettings(), now))


def test_machines_that_boot_are_told_as_they_will_be() -> None:
    told = public(report_of(turn(NOW), None, "me"))
    assert [(one.shape.name, one.ready, one.shape.has("nvidia.com/gpu")) for one in told.upcoming] == [
        ("n1", NOW + 110.0, 8),
        ("m2", NOW + 150.0, 8),
    ]
    assert b"secret-name" not in msgspec.json.encode(told)
    later = public(report_of(turn(NOW + 170.0), None, "me"))
    assert later.upcoming == told.upcoming, "one that is late is no news in every loop"


class Told:
    """A client that finds one ConfigMap."""

    def __init__(self, text: str | None, error: Exception | None = None) -> None:
        self.text, self.error, self.asked = text, error, list[str]()

    def find(self, kind: Any, name: str, *, namespace: str) -> dict[str, Any] | None:
        self.asked.append(f"{namespace}/{name}")
        if self.error is not None:
            raise self.error
        return None if self.text is None else {"data": {"report": self.text}}


def test_the_gate_reads_them_in_the_namespace_of_the_autoscaler_alone() -> None:
    told = public(report_of(turn(NOW), None, "me"))
    client = Told(msgspec.json.encode(told).decode())
    assert observe_upcoming(cast(Client, client), NOW) == told.upcoming
    assert client.asked == ["longboat-system/longboat-autoscaler-status"]
    assert observe_upcoming(cast(Client, client), NOW + SILENT_S + 1) == (), "an autoscaler that is gone orders nothing"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"upcoming": [{"shape": 1}]}'])
def test_an_invalid_status_configmap_has_no_upcoming_nodes(text: str | None) -> None:
    assert observe_upcoming(cast(Client, Told(text)), 0.0) == ()


def test_a_forbidden_status_configmap_has_no_upcoming_nodes() -> None:
    error = Forbidden("no", status=403)
    assert observe_upcoming(cast(Client, Told(None, error)), 0.0) == ()


class Written:
    """A client that counts what is applied."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def now(self) -> float:
        return NOW

    def find(self, kind: Any, name: str, *, namespace: str) -> None:
        return None

    def apply(self, body: dict[str, Any]) -> None:
        self.names.append(body["metadata"]["name"])


def test_each_part_is_written_when_it_has_changed() -> None:
    client = Written()
    reporter = Reporter(cast(Client, client), "home", "me", print)
    reporter.turned(turn(NOW))
    assert client.names == [NAME, DETAILS]
    reporter.turned(turn(NOW + 1.0))
    assert client.names == [NAME, DETAILS], "nothing is new but the time"
    reporter.failed("the cloud is down")
    assert client.names == [NAME, DETAILS, DETAILS], "why it failed is not for everybody"


def test_numbers_that_change_in_every_loop_are_told_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("longboat.autoscaler.report.status.time.monotonic", lambda: clock[0])
    client = Written()
    reporter = Reporter(cast(Client, client), "home", "me", print)
    base = turn(NOW)
    reporter.turned(base)
    waiting = (PendingItem(run="team/r", reason="it waits"),)
    grown = msgspec.structs.replace(base, plan=msgspec.structs.replace(base.plan, waiting=waiting))
    client.names.clear()
    reporter.turned(grown)
    assert client.names == [], "who waits changes in every loop of a busy time"
    clock[0] += status.SETTLE_S
    reporter.turned(grown)
    assert client.names == [NAME, DETAILS]
    client.names.clear()
    done = ActionResult(action=ScalingAction(kind="grow", pool="h100", count=1, reason="r"))
    reporter.turned(msgspec.structs.replace(grown, results=(done,)))
    assert client.names == [], "in a wave of runs every loop does something"
    clock[0] += status.PEOPLE_S
    reporter.turned(msgspec.structs.replace(grown, results=(done,)))
    assert client.names == [DETAILS], "people see what was done a little sooner"
    client.names.clear()
    booted = msgspec.structs.replace(turn(NOW), snapshot=msgspec.structs.replace(base.snapshot, orders=()))
    reporter.turned(booted)
    assert NAME in client.names, "the gate plans with the machines that boot"
