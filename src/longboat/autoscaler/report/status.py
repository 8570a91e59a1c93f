"""Status of the autoscaler: a report for those who run the cluster, and numbers of its pools for everybody.

Both are ConfigMaps. The report names runs of all namespaces and is for whoever may read ConfigMaps there; the other one
tells every user that machines can be added, and names nobody. A run's owner learns of machines that are ordered for it
by an event on the run's own record (`events`).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from longboat.autoscaler.model.machines import machines_of, patience
from longboat.autoscaler.model.plan import PendingItem, PoolNote
from longboat.autoscaler.model.snapshot import AutoscalerSettings
from longboat.autoscaler.model.turn import LoopTurn
from longboat.autoscaler.observe.orders import LABELS
from longboat.autoscaler.report.events import sentence
from longboat.core.errors import LongboatError
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value
from longboat.fitting.backfill import UpcomingNode
from longboat.kubeapi.client import Client, Object
from longboat.kubeapi.errors import Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP

NAME = "longboat-autoscaler-status"
"""Of what everybody may read."""
DETAILS = "longboat-autoscaler-report"
MOST = 50  # rows of each list: the object stays far below 1 MiB
REFRESH_S = 30.0  # so old may an unchanged report be; older means that the autoscaler is down
PEOPLE_S = 5.0  # so old may the report for people be when machines come and go: in a wave of runs every loop moves some
SETTLE_S = 10.0  # so old may one be in which only numbers have changed: while machines boot every loop changes some


class PoolReport(Value, frozen=True):
    note: PoolNote
    min: int = 0
    max: int = 0
    states: dict[str, int] = {}
    gpus: int = 0  # of one machine
    price: float = 0.0  # of one machine for an hour; 0: not stated
    boot_s: float = 0.0


class OrderReport(Value, frozen=True):
    """Machines of one order that are no node yet."""

    pool: str
    count: int
    asked: float
    expected: float
    zone: str | None = None
    gang: str | None = None  # whom they were ordered for


class ActionReport(Value, frozen=True):
    at: float
    text: str
    trouble: str = ""


class Report(Value, frozen=True):
    at: float  # of the last loop
    identity: str = ""
    pools: tuple[PoolReport, ...] = ()
    orders: tuple[OrderReport, ...] = ()  # the oldest of them
    waiting: tuple[PendingItem, ...] = ()  # the first of them
    waiting_count: int = 0
    deeds: tuple[ActionReport, ...] = ()  # the last of them, newest first
    trouble: str = ""  # why the last loop failed
    warnings: tuple[str, ...] = ()  # what a person should look at
    upcoming: tuple[
        UpcomingNode, ...
    ] = ()  # the first machines that are no node yet, or boot: the gate plans with them
    is_public: bool = False  # without names of runs: the reader may not list other namespaces


def report_of(turn: LoopTurn, before: Report | None, identity: str) -> Report:
    limits = {pool.name: pool for pool in turn.snapshot.pools}
    states = Counter((node.pool or "", node.state) for node in turn.plan.nodes)
    pools = [
        PoolReport(
            note=note,
            min=limits[note.pool].min,
            max=limits[note.pool].max,
            states={state: count for (pool, state), count in sorted(states.items()) if pool == note.pool},
            gpus=limits[note.pool].machine.has(limits[note.pool].gpu_resource),
            price=limits[note.pool].price,
            boot_s=limits[note.pool].boot_s,
        )
        for note in turn.plan.pools
    ]
    new = [ActionReport(at=turn.now, text=sentence(result)[:500], trouble=result.trouble) for result in turn.results]
    old = before.deeds if before is not None else ()
    return Report(
        at=turn.now,
        identity=identity,
        pools=tuple(pools),
        orders=orders_in(turn)[:MOST],
        waiting=turn.plan.waiting[:MOST],
        waiting_count=len(turn.plan.waiting),
        deeds=(*reversed(new), *old)[:MOST],
        warnings=turn.warnings[:MOST],
        upcoming=upcoming_in(turn)[:MOST],
    )


def public(report: Report) -> Report:
    """The public part of the report: numbers of the pools, and booting machines."""
    pools = tuple(
        PoolReport(
            note=PoolNote(pool=pool.note.pool, reason="", size=pool.note.size, coming=pool.note.coming),
            min=pool.min,
            max=pool.max,
            gpus=pool.gpus,
            price=pool.price,
            boot_s=pool.boot_s,
        )
        for pool in report.pools
    )
    return Report(
        at=report.at,
        identity=report.identity,
        pools=pools,
        waiting_count=report.waiting_count,
        upcoming=report.upcoming,
        is_public=True,
    )


def orders_in(turn: LoopTurn) -> tuple[OrderReport, ...]:
    """Orders in flight, those that failed left out: their machines are given back."""
    boots = {pool.name: pool.boot_s for pool in turn.snapshot.pools}
    counts = Counter((order.asked, order.pool, order.zone, order.gang) for order in turn.snapshot.orders if order.asked)
    return tuple(
        OrderReport(pool=pool, count=count, asked=asked, expected=asked + boots.get(pool, 0.0), zone=zone, gang=gang)
        for (asked, pool, zone, gang), count in sorted(counts.items(), key=lambda pair: tuple(map(str, pair[0])))
    )


def upcoming_in(turn: LoopTurn) -> tuple[UpcomingNode, ...]:
    """Machines that boot, as they will be, with the moment at which they should be ready, the earliest first."""
    if not any(note.coming for note in turn.plan.pools):
        return ()
    settings = AutoscalerSettings()  # only how long a machine may take is read, and the usual time will do
    nodes = [
        # Not `expected`, which moves on with the clock: the report is written only when something has changed.
        UpcomingNode(
            shape=machine.shape, ready=machine.deadline - patience(machine.pool, settings) + machine.pool.boot_s
        )
        for machine in machines_of(turn.snapshot, settings, turn.now)
        if machine.condition == "booting"
        and machine.cordon is None
        and machine.pool is not None
        and machine.deadline is not None
    ]
    return tuple(sorted(nodes, key=lambda node: (node.ready, node.shape.name)))


def read_report(client: Client, home: str) -> Report | None:
    """The whole report, or the public part of it where the other may not be read."""
    for name in (DETAILS, NAME):
        with contextlib.suppress(Forbidden, msgspec.DecodeError):
            config_map = client.find(CONFIG_MAP, name, namespace=home)
            text = ((config_map or {}).get("data") or {}).get("report")
            if text:
                return decode(text, Report)
    return None


def settle_s(before: Report, now: Report) -> float:
    """How old the written report may be, with what has changed since: what somebody waits for is told at once."""
    if now.is_public:
        is_new = (before.upcoming, before.pools, before.identity) != (now.upcoming, now.pools, now.identity)
        return 0.0 if is_new else SETTLE_S  # the gate plans with the machines that boot
    if (before.trouble, before.warnings) != (now.trouble, now.warnings):
        return 0.0
    return PEOPLE_S if (_sizes(before), before.deeds) != (_sizes(now), now.deeds) else SETTLE_S


def _sizes(report: Report) -> list[tuple[str, int, int, float | None]]:
    notes = [pool.note for pool in report.pools]
    return [(note.pool, note.size, note.ordered, note.blocked_until) for note in notes]


class Reporter:
    """A listener of the loop: writes when something has changed, else every half minute."""

    def __init__(self, client: Client, home: str, identity: str, say: Callable[[str], None]) -> None:
        self._client, self._home, self._identity, self._say = client, home, identity, say
        self._report: Report | None = None
        self._is_read = False
        self._written: dict[str, tuple[Report, bytes, float]] = {}  # what was written when
        self._trouble = ""

    def turned(self, turn: LoopTurn) -> None:
        if not self._is_read:
            self._try(lambda: setattr(self, "_report", read_report(self._client, self._home)))
            self._is_read = True
        new = report_of(turn, self._report, self._identity)
        self._write(new)

    def failed(self, message: str) -> None:
        before = self._report or Report(at=self._client.now(), identity=self._identity)
        self._write(msgspec.structs.replace(before, trouble=message[:500]))

    def _write(self, new: Report) -> None:
        self._report = new
        for name, report in ((NAME, public(new)), (DETAILS, new)):
            self._write_one(name, report)

    def _write_one(self, name: str, report: Report) -> None:
        """Skipped while nothing has changed that somebody waits for: the loop comes again soon."""
        new = msgspec.json.encode(msgspec.structs.replace(report, at=0.0))
        if name in self._written:
            before, text, at = self._written[name]
            age_s = time.monotonic() - at
            if age_s < (REFRESH_S if new == text else settle_s(before, report)):
                return
        if self._try(lambda: self._client.apply(self._body(name, report))):
            self._written[name] = (report, new, time.monotonic())
        else:
            self._written.pop(name, None)

    def _body(self, name: str, report: Report) -> Object:
        meta = {"name": name, "namespace": self._home, "labels": LABELS}
        data = {"report": msgspec.json.encode(report).decode()}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    def _try(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except LongboatError as error:
            if error.message != self._trouble:
                self._say(f"the status cannot be written: {error.message}")
            self._trouble = error.message
            return False
        return True
