"""The autoscaler as a service: assembly from a pools file, leader election, answers to probes.

What a turn does is `loop`'s; signals, parsing and printing are the command line's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec

from longboat.autoscaler.loop import AutoscalerLoop
from longboat.autoscaler.model.config import INTERVAL_S, AutoscalerConfig, LoopPace
from longboat.autoscaler.model.pools_file import read_pools, read_providers
from longboat.autoscaler.model.provider_settings import CloudSettings, ExecSettings
from longboat.autoscaler.model.snapshot_file import SavedSnapshot
from longboat.autoscaler.model.turn import LoopTurn, TurnListener
from longboat.autoscaler.observe.observe import observe
from longboat.autoscaler.observe.orders import OrderStore
from longboat.autoscaler.observe.watch import listed
from longboat.autoscaler.providers.provider import ProviderError
from longboat.autoscaler.providers.registry import differences, discover, open_providers
from longboat.autoscaler.report.events import Events, Webhook
from longboat.autoscaler.report.metrics import Metrics, serve
from longboat.autoscaler.report.status import Report, Reporter, read_report
from longboat.autoscaler.report.turn_log import lines
from longboat.kubeapi.boottime import clock
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import LEASE
from longboat.kubeapi.leases import Leader, process_identity
from longboat.kubeapi.watch import UNHEALTHY_S

LEASE_NAME = "longboat-autoscaler"
WEBHOOK = "LONGBOAT_AUTOSCALER_WEBHOOK"
REFRESH_S = 600.0
"""Between two looks at the pools of a cloud: people change sizes and make node groups by the hour."""


class RunOptions(NamedTuple):
    """How the service was asked to work."""

    interval_s: float
    is_dry: bool
    once: bool
    metrics_port: int | None
    log: Literal["text", "json"]


class Output(NamedTuple):
    """Where a service writes: lines of its log, and what a person should read."""

    log: Callable[[Iterable[str]], None]
    say: Callable[[str], None]


def read_config(pools_file: str, *, interval_s: float = INTERVAL_S, is_dry: bool = True) -> AutoscalerConfig:
    """All but where its memory is kept, which only the cluster can tell. Clouds are asked for their pools."""
    pools, settings = read_pools(pools_file)
    known = read_providers(pools_file)
    pace = LoopPace(interval_s=interval_s)
    return with_discovered(AutoscalerConfig(pools=pools, settings=settings, pace=pace, is_dry=is_dry, providers=known))


def with_discovered(config: AutoscalerConfig) -> AutoscalerConfig:
    """With the pools that clouds show now, in place of those that they showed before. Raises ProviderError."""
    written = tuple(pool for pool in config.pools if not pool.is_estimated)
    pools, notes = discover(written, config.providers)
    if (pools, notes) == (config.pools, config.notes):
        return config
    return msgspec.structs.replace(config, pools=pools, notes=notes)


def observe_once(client: Client, config: AutoscalerConfig) -> SavedSnapshot:
    """What there is to decide on now, read once from a cluster and from the providers. Nothing is changed."""
    providers = open_providers(config.pools, config.providers, client, config.home)
    objects = listed(client)
    book = OrderStore(client, config.home).load()
    observed = observe(lambda: objects, config, providers, book, client.now)
    return SavedSnapshot(now=observed.now, snapshot=observed.snapshot, settings=config.settings)


def read_status(client: Client, home: str) -> tuple[Report | None, str | None]:
    """What the autoscaler wrote last, and who holds its Lease."""
    lease = client.find(LEASE, LEASE_NAME, namespace=home)
    holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or None
    return read_report(client, home), str(holder).rpartition("_")[0] if holder else None


def stuck_s(config: AutoscalerConfig) -> float:
    """After so long without a loop that succeeded something is wrong: a loop may wait for each provider's commands."""
    limits = (provider.timeout_s for provider in config.providers.values() if isinstance(provider, ExecSettings))
    return UNHEALTHY_S + 2 * sum(limits)


class AutoscalerService:
    """Stands by until it leads, works while it leads. A dry run needs no leader and never writes."""

    def __init__(
        self, client: Client, config: AutoscalerConfig, options: RunOptions, output: Output, ending: threading.Event
    ) -> None:
        self.client, self.config, self.options = client, config, options
        self.say, self.ending = output.say, ending
        self.providers = open_providers(config.pools, config.providers, client, config.home)
        self.identity = process_identity()
        self.leader = Leader(client, config.home, self.identity, name=LEASE_NAME)
        self.metrics = Metrics(self.leads)
        self.log = TurnLog(options.log, output, ending if options.once else None)

    def leads(self) -> bool:
        return self.config.is_dry or self.leader.is_leader

    def run(self) -> None:
        """Serve until `ending` is set."""
        written = tuple(pool for pool in self.config.pools if not pool.is_estimated)
        for text in (*self.config.notes, *differences(written, self.providers)):
            self.say(text)
        listeners: list[TurnListener] = [self.metrics, self.log]
        webhook = None
        if not self.config.is_dry:
            listeners += [
                Events(self.client, self.config.home, self.say),
                Reporter(self.client, self.config.home, self.identity, self.say),
            ]
            if address := os.environ.get(WEBHOOK):
                webhook = Webhook(address, self.say, name=self.client.context or "")
                listeners.append(webhook)
        self.serve_metrics()
        if not self.config.is_dry:
            self.leader.start()
        try:
            self.work(tuple(listeners))
        finally:
            if not self.config.is_dry:
                self.leader.stop()
            if webhook is not None:
                webhook.close()

    def serve_metrics(self) -> None:
        if self.options.metrics_port is not None:
            checks = {"/healthz": self.why_unhealthy, "/readyz": self.why_not_ready}
            server = serve(self.options.metrics_port, self.metrics, checks)
            self.say(f"metrics at port {server.server_address[1]}")

    def why_not_ready(self) -> str:
        """Empty: it works, or stands by. An update waits for this before it ends the old one."""
        if self.leader.trouble:
            return self.leader.trouble
        return "" if not self.leads() or self.log.is_well else self.log.trouble or "no loop has ended yet"

    def why_unhealthy(self) -> str:
        """What a restart may mend: threads that ended, loops that have failed (or hung) for long. Empty: nothing."""
        if not self.leader.is_alive:
            return "a thread that keeps the Lease has ended"
        silent_s = self.log.silent_s
        if not self.leads() or silent_s <= stuck_s(self.config):
            return ""
        return f"no loop has succeeded for {silent_s:.0f} s: {self.log.trouble or 'the last has not ended'}"

    def work(self, listeners: tuple[TurnListener, ...]) -> None:
        reported = ""
        while not self.ending.is_set():
            if not self.config.is_dry and not self.leader.wait(1.0):
                if self.leader.trouble and self.leader.trouble != reported:
                    self.say(self.leader.trouble)
                reported = self.leader.trouble
                continue
            self.log.begin()
            left_s = self.leader.remaining_term()
            self.say(f"{self.identity} {'looks only (dry run)' if self.config.is_dry else 'leads'}")
            self.loop(left_s, listeners).run(self.ending)
            if not self.ending.is_set():
                self.say("another leads now")

    def loop(self, left_s: Callable[[], float], listeners: tuple[TurnListener, ...]) -> AutoscalerLoop:
        """The loop of one term of leadership: it writes only while the term lasts."""
        config = self.config
        refresh = PoolRefresh(self)
        listeners = (*listeners, refresh)
        if config.is_dry:
            refresh.loop = AutoscalerLoop(self.client, config, self.providers, listeners=listeners)
            return refresh.loop
        client = self.client.within(left_s)
        providers = open_providers(config.pools, config.providers, client, config.home)

        def may_work() -> bool:
            return left_s() > 0 and not self.ending.is_set()

        refresh.loop = AutoscalerLoop(client, config, providers, listeners=listeners, may_work=may_work)
        return refresh.loop


class PoolRefresh:
    """A listener of the loop: between turns in which nothing was done, clouds are asked for their pools again."""

    def __init__(self, service: AutoscalerService) -> None:
        self.service = service
        self.loop: AutoscalerLoop | None = None
        self._asked_at = clock()
        self._trouble = ""

    def turned(self, turn: LoopTurn) -> None:
        config = self.service.config
        is_due = clock() - self._asked_at >= REFRESH_S and not turn.results
        if not is_due or not any(isinstance(each, CloudSettings) for each in config.providers.values()):
            return
        self._asked_at = clock()
        try:
            new, trouble = with_discovered(config), ""
        except ProviderError as error:
            new, trouble = config, f"pools are as they were: {error.message}"
        if trouble and trouble != self._trouble:
            self.service.say(trouble)
        self._trouble = trouble
        if new is not config and self.loop is not None:
            self.service.config = new
            self.loop.reconfigure(new)
            self.service.say(f"pools as the cloud shows them now: {', '.join(pool.name for pool in new.pools)}")

    def failed(self, message: str) -> None:
        pass


class TurnLog:
    """A listener of the loop: its lines go to the log, and what fails is said, once."""

    def __init__(self, form: Literal["text", "json"], output: Output, ends: threading.Event | None) -> None:
        self.form, self.output, self.ends = form, output, ends
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
        self.trouble, self.is_well = "", True
        self._succeeded_at = clock()
        for text in turn.warnings:
            if text not in self.warned:
                self.output.say(text)
        self.warned = turn.warnings
        self.output.log(lines(turn, self.form))
        if self.ends is not None:
            self.ends.set()

    def failed(self, message: str) -> None:
        if message != self.trouble:
            self.output.say(f"this loop failed: {message}")
        self.trouble, self.is_well = message, False
