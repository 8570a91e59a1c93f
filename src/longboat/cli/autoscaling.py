"""The live half of `longboat autoscaler`: a look at a cluster, the loop until it is told to end, how it stands."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Literal, NamedTuple

from longboat.cli.terminal import clean, say
from longboat.core.errors import UsageError

if TYPE_CHECKING:
    from longboat.autoscaler.charges import Charge
    from longboat.autoscaler.loop import Listener, Turn
    from longboat.autoscaler.providers.provider import Provider
    from longboat.autoscaler.reports import Report
    from longboat.autoscaler.saved import Saved
    from longboat.engines.kubernetes.api.client import Client

LEASE = "longboat-autoscaler"
WEBHOOK = "LONGBOAT_AUTOSCALER_WEBHOOK"


class Duty(NamedTuple):
    """How `run` was asked to work."""

    interval_s: float
    is_dry: bool
    once: bool
    metrics_port: int | None
    log: Literal["text", "json"]


def look_live(context: str | None, home: str | None, pools: str) -> Saved:
    """What there is to decide on now, read once from a cluster and from the providers. Nothing is changed."""
    from longboat.autoscaler.loop import look, see
    from longboat.autoscaler.memory import Store, reconcile
    from longboat.autoscaler.observe import joined_in, listed
    from longboat.autoscaler.poolfile import read_pools, read_providers
    from longboat.autoscaler.providers.opening import open_providers
    from longboat.autoscaler.saved import Saved
    from longboat.engines.kubernetes.api.client import Client

    found, settings = read_pools(pools)
    with Client.open(context=context) as client:
        where = home_of(client, home)
        providers = open_providers(found, read_providers(pools), client, where)
        memory = Store(client, where).load()
        seen, blind = see(providers, found, memory)
        objects, now = listed(client), client.now()
        memory = reconcile(memory, seen, joined_in(objects), settings, now)
        return Saved(now=now, snapshot=look(objects, found, memory, seen, now, blind), settings=settings)


def home_of(client: Client, home: str | None) -> str:
    from longboat.cli.controller import lease_home

    return home or lease_home(client)


def run(context: str | None, home: str | None, pools: str, duty: Duty) -> int:
    from longboat.autoscaler.charges import Charge, Pace
    from longboat.autoscaler.poolfile import read_pools, read_providers
    from longboat.autoscaler.providers.opening import differences, open_providers
    from longboat.engines.kubernetes.api.client import Client

    found, settings = read_pools(pools)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    with Client.open(context=context) as client:
        where = home_of(client, home)
        providers = open_providers(found, read_providers(pools), client, where)
        for text in differences(found, providers):
            tell(text)
        pace = Pace(interval_s=duty.interval_s)
        charge = Charge(pools=found, settings=settings, home=where, pace=pace, is_dry=duty.is_dry)
        Station(client, charge, providers, duty, ending).work()
    return 0


def tell(text: str) -> None:
    say(f"longboat: {clean(text)}")


class Station:
    """Stands by until it leads, works while it leads. A dry run needs no leader and never writes."""

    def __init__(
        self,
        client: Client,
        charge: Charge,
        providers: dict[str, Provider],
        duty: Duty,
        ending: threading.Event,
    ) -> None:
        from longboat.autoscaler.metrics import Metrics
        from longboat.engines.kubernetes.lease import Leader

        self.client, self.charge, self.providers = client, charge, providers
        self.duty, self.ending = duty, ending
        self.identity = os.environ.get("LONGBOAT_POD") or f"{socket.gethostname()}-{os.getpid()}"
        self.leader = Leader(client, charge.home, self.identity, name=LEASE)
        self.metrics = Metrics(self.leads)
        self.journal = Journal(duty.log, ending if duty.once else None)

    def leads(self) -> bool:
        return self.charge.is_dry or self.leader.is_leader

    def goes_on(self) -> bool:
        return self.leads() and not self.ending.is_set()

    def work(self) -> None:
        from longboat.autoscaler.notices import Events, Webhook
        from longboat.autoscaler.reports import Reporter

        listeners: list[Listener] = [self.metrics, self.journal]
        webhook = None
        if not self.charge.is_dry:
            listeners += [
                Events(self.client, tell),
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
            from longboat.autoscaler.metrics import serve

            questions = {"/healthz": lambda: True, "/readyz": lambda: not self.leader.trouble}
            server = serve(self.duty.metrics_port, self.metrics, questions)
            tell(f"metrics at port {server.server_address[1]}")

    def lead(self, listeners: tuple[Listener, ...]) -> None:
        from longboat.autoscaler.loop import Loop

        told = ""
        while not self.ending.is_set():
            if not self.charge.is_dry and not self.leader.wait(1.0):
                if self.leader.trouble and self.leader.trouble != told:
                    tell(self.leader.trouble)
                told = self.leader.trouble
                continue
            tell(f"{self.identity} {'looks only (dry run)' if self.charge.is_dry else 'leads'}")
            Loop(self.client, self.charge, self.providers, listeners=listeners, may_work=self.goes_on).run(self.ending)
            if not self.ending.is_set():
                tell("another leads now")


class Journal:
    """A listener of the loop: its lines go to stdout, what fails to stderr, once."""

    def __init__(self, form: Literal["text", "json"], ends: threading.Event | None) -> None:
        self.form, self.ends = form, ends
        self.trouble = ""

    def turned(self, turn: Turn) -> None:
        from longboat.autoscaler.journal import lines

        self.trouble = ""
        for line in lines(turn, self.form):
            print(line if self.form == "json" else clean(line))
        sys.stdout.flush()
        if self.ends is not None:
            self.ends.set()

    def failed(self, message: str) -> None:
        if message != self.trouble:
            tell(f"this loop failed: {message}")
        self.trouble = message


def report(context: str | None, home: str | None) -> tuple[Report | None, str | None, float]:
    """What the autoscaler wrote last, who holds its Lease, and the time there."""
    from longboat.autoscaler.reports import read_report
    from longboat.engines.kubernetes.api.client import Client
    from longboat.engines.kubernetes.api.kinds import LEASE as LEASE_KIND

    with Client.open(context=context) as client:
        where = home_of(client, home)
        found = read_report(client, where)
        lease = client.find(LEASE_KIND, LEASE, namespace=where)
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or None
        return found, str(holder).rpartition("_")[0] if holder else None, client.now()


def print_report(found: Report, holder: str | None, now: float) -> None:
    from longboat.autoscaler.moments import show, text_of
    from longboat.cli.tables import print_fields, print_table

    print_fields(
        [
            ("leader", holder or "nobody: no autoscaler runs"),
            ("last loop", f"{text_of(found.at)} ({show(now - found.at)} ago)"),
            ("trouble", found.trouble),
            ("waiting", found.waiting_count),
        ]
    )
    rows = []
    for pool in found.pools:
        states = ", ".join(f"{count} {state}" for state, count in pool.states.items())
        note = pool.note
        rows.append((note.pool, note.size, f"{pool.min}-{pool.max}", note.coming, states, note.reason))
    print()
    print_table(("POOL", "MACHINES", "LIMITS", "COMING", "STATES", "REASON"), rows)
    if found.waiting:
        print()
        print_table(("WAITING", "REASON"), [(one.run or one.pod, one.reason) for one in found.waiting])
    if found.deeds:
        print()
        deeds = [(text_of(one.at), one.text, one.trouble) for one in found.deeds[:20]]
        print_table(("TIME", "DONE", "NOT DONE BECAUSE"), deeds)


def need_pools(pools: str | None) -> str:
    if pools is None:
        hint = "--pools names the file with your pools; --objects FILE looks at a file instead of a cluster"
        raise UsageError("the option --pools is missing", hint=hint)
    return pools
