"""The live half of `longboat autoscaler`: a look at a cluster, the loop until it is told to end, how it stands."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from longboat.cli.output.terminal import clean, say
from longboat.core.errors import UsageError
from longboat.kubeapi.boottime import clock

if TYPE_CHECKING:
    from longboat.autoscaler.loop import AutoscalerLoop, LoopTurn, TurnListener
    from longboat.autoscaler.model.config import AutoscalerConfig
    from longboat.autoscaler.model.snapshot_file import SavedSnapshot
    from longboat.autoscaler.providers.provider import Provider
    from longboat.autoscaler.report.status import Report
    from longboat.kubeapi.client import Client

LEASE = "longboat-autoscaler"
WEBHOOK = "LONGBOAT_AUTOSCALER_WEBHOOK"
RETRIES = 10


class RunOptions(NamedTuple):
    """How `run` was asked to work."""

    interval_s: float
    is_dry: bool
    once: bool
    metrics_port: int | None
    log: Literal["text", "json"]


def look_live(context: str | None, home: str | None, pools: str) -> SavedSnapshot:
    """What there is to decide on now, read once from a cluster and from the providers. Nothing is changed."""
    from longboat.autoscaler.model.config import AutoscalerConfig
    from longboat.autoscaler.model.pools_file import read_pools, read_providers
    from longboat.autoscaler.model.snapshot_file import SavedSnapshot
    from longboat.autoscaler.observe.instances import list_instances
    from longboat.autoscaler.observe.orders import OrderStore, reconcile
    from longboat.autoscaler.observe.watch import joined_in, listed, snapshot_from
    from longboat.autoscaler.providers.registry import open_providers
    from longboat.kubeapi.client import Client

    found, settings = read_pools(pools)
    with Client.open(context=context) as client:
        known = read_providers(pools)
        charge = AutoscalerConfig(
            pools=found, settings=settings, home=home_of(client, home), is_dry=True, providers=known
        )
        providers = open_providers(found, known, client, charge.home)
        objects = listed(client)
        memory = OrderStore(client, charge.home).load()
        sight = list_instances(providers, charge, memory, client.now(), joined_in(objects))
        now = client.now()
        memory = reconcile(sight.memory, sight.seen, joined_in(objects), charge, now)
        snapshot = snapshot_from(objects, found, memory, sight.seen, now, sight.blocked)
        return SavedSnapshot(now=now, snapshot=snapshot, settings=settings)


def home_of(client: Client, home: str | None) -> str:
    from longboat.cli.admin.controller import lease_home

    return home or lease_home(client)


def run(context: str | None, home: str | None, pools: str, duty: RunOptions) -> int:
    from longboat.autoscaler.model.config import AutoscalerConfig, LoopPace
    from longboat.autoscaler.model.pools_file import read_pools, read_providers
    from longboat.autoscaler.providers.registry import differences, open_providers
    from longboat.kubeapi.client import Client

    found, settings = read_pools(pools)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    with Client.open(context=context) as client:
        where = home_of(client, home)
        known = read_providers(pools)
        providers = open_providers(found, known, client, where)
        for text in differences(found, providers):
            tell(text)
        pace = LoopPace(interval_s=duty.interval_s)
        charge = AutoscalerConfig(
            pools=found, settings=settings, home=where, pace=pace, is_dry=duty.is_dry, providers=known
        )
        AutoscalerService(client, charge, providers, duty, ending).work()
    return 0


def tell(text: str) -> None:
    say(f"longboat: {clean(text)}")


class AutoscalerService:
    """Stands by until it leads, works while it leads. A dry run needs no leader and never writes."""

    def __init__(
        self,
        client: Client,
        charge: AutoscalerConfig,
        providers: dict[str, Provider],
        duty: RunOptions,
        ending: threading.Event,
    ) -> None:
        from longboat.autoscaler.report.metrics import Metrics
        from longboat.kubeapi.leases import Leader

        self.client, self.charge, self.providers = client, charge, providers
        self.duty, self.ending = duty, ending
        self.identity = os.environ.get("LONGBOAT_POD") or f"{socket.gethostname()}-{os.getpid()}"
        self.leader = Leader(client, charge.home, self.identity, name=LEASE)
        self.metrics = Metrics(self.leads)
        self.journal = LoopPrinter(duty.log, ending if duty.once else None)

    def leads(self) -> bool:
        return self.charge.is_dry or self.leader.is_leader

    def goes_on(self) -> bool:
        return self.leads() and not self.ending.is_set()

    def work(self) -> None:
        from longboat.autoscaler.report.events import Events, Webhook
        from longboat.autoscaler.report.status import Reporter

        listeners: list[TurnListener] = [self.metrics, self.journal]
        webhook = None
        if not self.charge.is_dry:
            listeners += [
                Events(self.client, self.charge.home, tell),
                Reporter(self.client, self.charge.home, self.identity, tell),
            ]
            if address := os.environ.get(WEBHOOK):
                webhook = Webhook(address, tell, name=self.client.context or "")
                listeners.append(webhook)
        self.answer()
        if not self.charge.is_dry:
            self.leader.start()
        try:
            self.lead(tuple(listeners))
        finally:
            if not self.charge.is_dry:
                self.leader.stop()
            if webhook is not None:
                webhook.close()

    def answer(self) -> None:
        if self.duty.metrics_port is not None:
            from longboat.autoscaler.report.metrics import serve

            checks = {"/healthz": self.why_unhealthy, "/readyz": self.why_not_ready}
            server = serve(self.duty.metrics_port, self.metrics, checks)
            tell(f"metrics at port {server.server_address[1]}")

    def why_not_ready(self) -> str:
        """Empty: it works, or stands by. An update waits for this before it ends the old one."""
        if self.leader.trouble:
            return self.leader.trouble
        return "" if not self.leads() or self.journal.is_well else self.journal.trouble or "no loop has ended yet"

    def why_unhealthy(self) -> str:
        """What a restart may mend: threads that ended, loops that have failed (or hung) for long. Empty: nothing."""
        from longboat.autoscaler.model.config import stuck_s

        if not self.leader.is_alive:
            return "a thread that keeps the Lease has ended"
        lasted = self.journal.silent_s
        if not self.leads() or lasted <= stuck_s(self.charge):
            return ""
        return f"no loop has succeeded for {lasted:.0f} s: {self.journal.trouble or 'the last has not ended'}"

    def lead(self, listeners: tuple[TurnListener, ...]) -> None:
        told = ""
        while not self.ending.is_set():
            if not self.charge.is_dry and not self.leader.wait(1.0):
                if self.leader.trouble and self.leader.trouble != told:
                    tell(self.leader.trouble)
                told = self.leader.trouble
                continue
            self.journal.begin()
            left_s = self.leader.mandate()
            tell(f"{self.identity} {'looks only (dry run)' if self.charge.is_dry else 'leads'}")
            self.loop(left_s, listeners).run(self.ending)
            if not self.ending.is_set():
                tell("another leads now")

    def loop(self, left_s: Callable[[], float], listeners: tuple[TurnListener, ...]) -> AutoscalerLoop:
        """Of one leadership: whatever it writes, it writes while that lasts."""
        from longboat.autoscaler.loop import AutoscalerLoop
        from longboat.autoscaler.providers.registry import open_providers

        charge = self.charge
        if charge.is_dry:
            return AutoscalerLoop(self.client, charge, self.providers, listeners=listeners, may_work=self.goes_on)
        client = self.client.within(left_s)
        providers = open_providers(charge.pools, charge.providers, client, charge.home)

        def goes_on() -> bool:
            return left_s() > 0 and not self.ending.is_set()

        return AutoscalerLoop(client, charge, providers, listeners=listeners, may_work=goes_on)


class LoopPrinter:
    """A listener of the loop: its lines go to stdout, what fails to stderr, once."""

    def __init__(self, form: Literal["text", "json"], ends: threading.Event | None) -> None:
        self.form, self.ends = form, ends
        self.trouble = ""
        self.is_well = False  # whether the last loop succeeded
        self.warned: tuple[str, ...] = ()
        self.begin()

    def begin(self) -> None:
        """From now on loops are expected."""
        self._succeeded_at = clock()

    @property
    def silent_s(self) -> float:
        """How long ago the last loop succeeded, or loops began."""
        return clock() - self._succeeded_at

    def turned(self, turn: LoopTurn) -> None:
        from longboat.autoscaler.report.turn_log import lines

        self.trouble, self.is_well = "", True
        self._succeeded_at = clock()
        for text in turn.warnings:
            if text not in self.warned:
                tell(text)
        self.warned = turn.warnings
        for line in lines(turn, self.form):
            print(line if self.form == "json" else clean(line))
        sys.stdout.flush()
        if self.ends is not None:
            self.ends.set()

    def failed(self, message: str) -> None:
        if message != self.trouble:
            tell(f"this loop failed: {message}")
        self.trouble, self.is_well = message, False


def report(context: str | None, home: str | None) -> tuple[Report | None, str | None, float]:
    """What the autoscaler wrote last, who holds its Lease, and the time there."""
    from longboat.autoscaler.report.status import read_report
    from longboat.kubeapi.client import Client
    from longboat.kubeapi.kinds import LEASE as LEASE_KIND

    with Client.open(context=context) as client:
        where = home_of(client, home)
        found = read_report(client, where)
        lease = client.find(LEASE_KIND, LEASE, namespace=where)
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or None
        return found, str(holder).rpartition("_")[0] if holder else None, client.now()


def print_report(found: Report, holder: str | None, now: float) -> None:
    from longboat.autoscaler.model.times import show, text_of
    from longboat.cli.output.tables import print_fields, print_table

    print_fields(
        [
            ("leader", holder or "nobody: no autoscaler runs"),
            ("last loop", f"{text_of(found.at)} ({show(now - found.at)} ago)"),
            ("trouble", found.trouble),
            ("waiting", found.waiting_count),
            (
                "note",
                "who waits and what was done is shown to those who may read its report" if found.is_public else "",
            ),
        ]
    )
    for text in found.warnings:
        say(f"longboat: {clean(text)}")
    rows = []
    for pool in found.pools:
        states = ", ".join(f"{count} {state}" for state, count in pool.states.items())
        note = pool.note
        rows.append((note.pool, note.size, f"{pool.min}-{pool.max}", note.coming, states, note.reason))
    print()
    print_table(("POOL", "MACHINES", "LIMITS", "COMING", "STATES", "REASON"), rows)
    print_orders(found, now)
    if found.waiting:
        print()
        print_table(("WAITING", "REASON"), [(one.run or one.pod, one.reason) for one in found.waiting])
    if found.deeds:
        print()
        deeds = [(text_of(one.at), one.text, one.trouble) for one in found.deeds[:20]]
        print_table(("TIME", "WHAT", "NOT DONE BECAUSE"), deeds)


def print_orders(found: Report, now: float) -> None:
    """Orders in flight, and where nothing is ordered at the moment."""
    from longboat.autoscaler.model.times import show, text_of
    from longboat.cli.output.tables import print_table

    if found.orders:
        print()
        orders = [
            (one.pool, one.zone, one.count, f"{show(now - one.asked)} ago", text_of(one.expected), one.gang)
            for one in found.orders
        ]
        print_table(("ORDERED", "ZONE", "MACHINES", "ASKED", "EXPECTED", "FOR"), orders)
    shut = [(pool.note.pool, one) for pool in found.pools for one in pool.note.backoffs]
    if shut:
        print()
        rows = [
            (pool, one.zone, one.kind, one.count, "off" if one.until is None else text_of(one.until), one.reason)
            for pool, one in shut
        ]
        print_table(("BACK-OFF", "ZONE", "KIND", "IN A ROW", "UNTIL", "REASON"), rows)


def retry(context: str | None, home: str | None, pools: tuple[str, ...]) -> list[str]:
    """Forget the refusals of these pools, or of all; returns those that were in back-off."""
    from longboat.autoscaler.observe.orders import OrdersChanged, OrderStore, retried
    from longboat.core.errors import NotFound
    from longboat.kubeapi.client import Client

    with Client.open(context=context) as client:
        store = OrderStore(client, home_of(client, home))
        for attempt in range(RETRIES):
            memory = store.load()
            known = sorted({one.pool for one in memory.failures})
            unknown = [name for name in pools if name not in known]
            if unknown:
                those = f"these are: {', '.join(known)}" if known else "none is"
                raise NotFound(f"pool {unknown[0]} is not in back-off; {those}", hint="longboat autoscaler status")
            try:
                store.save(retried(memory, pools or known))
                return [name for name in known if not pools or name in pools]
            except OrdersChanged:
                if attempt == RETRIES - 1:
                    raise
    return []


def need_pools(pools: str | None) -> str:
    if pools is None:
        hint = "--pools names the file with your pools; --objects FILE looks at a file instead of a cluster"
        raise UsageError("the option --pools is missing", hint=hint)
    return pools
