"""`longboat autoscaler` on a live cluster: a look, the service until it is told to end, its status."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from longboat.cli.output.terminal import clean, say
from longboat.core.errors import UsageError

if TYPE_CHECKING:
    from longboat.autoscaler.model.snapshot_file import SavedSnapshot
    from longboat.autoscaler.report.status import Report
    from longboat.autoscaler.service import RunOptions
    from longboat.kubeapi.client import Client


@contextlib.contextmanager
def opened(context: str | None, home: str | None) -> Iterator[tuple[Client, str]]:
    """Open a client of the cluster; yields it with the namespace of the autoscaler's Lease and order store."""
    from longboat.engines.kubernetes.install.install import lease_namespace
    from longboat.kubeapi.client import Client

    with Client.open(context=context) as client:
        yield client, home or lease_namespace(client)


def look_live(context: str | None, home: str | None, pools: str) -> SavedSnapshot:
    import msgspec

    from longboat.autoscaler.service import observe_once, read_config

    config = read_config(pools)
    with opened(context, home) as (client, where):
        return observe_once(client, msgspec.structs.replace(config, home=where))


def run(context: str | None, home: str | None, pools: str, options: RunOptions) -> int:
    import msgspec

    from longboat.autoscaler.service import AutoscalerService, Output, read_config
    from longboat.cli.admin.controller import end_of_process, tell

    config = read_config(pools, interval_s=options.interval_s, is_dry=options.is_dry)
    ending = end_of_process()

    def log(lines: Iterable[str]) -> None:
        for line in lines:
            print(line if options.log == "json" else clean(line))
        sys.stdout.flush()

    with opened(context, home) as (client, where):
        config = msgspec.structs.replace(config, home=where)
        AutoscalerService(client, config, options, Output(log, tell), ending).run()
    return 0


def read_status(context: str | None, home: str | None) -> tuple[Report | None, str | None, float]:
    """Read the autoscaler's latest report, the holder of its Lease, and the time of the cluster."""
    from longboat.autoscaler import service

    with opened(context, home) as (client, where):
        report, holder = service.read_status(client, where)
        return report, holder, client.now()


def print_report(report: Report, holder: str | None, now: float) -> None:
    from longboat.cli.output.tables import print_fields, print_table
    from longboat.core.times import format_time, show_age

    print_fields(
        [
            ("leader", holder or "nobody: no autoscaler runs"),
            ("last loop", f"{format_time(report.at)} ({show_age(now - report.at)} ago)"),
            ("trouble", report.trouble),
            ("waiting", report.waiting_count),
            (
                "note",
                "who waits and what was done is shown to those who may read its report" if report.is_public else "",
            ),
        ]
    )
    for text in report.warnings:
        say(f"longboat: {clean(text)}")
    rows = []
    for pool in report.pools:
        states = ", ".join(f"{count} {state}" for state, count in pool.states.items())
        note = pool.note
        rows.append((note.pool, note.size, f"{pool.min}-{pool.max}", note.coming, states, note.reason))
    print()
    print_table(("POOL", "MACHINES", "LIMITS", "COMING", "STATES", "REASON"), rows)
    print_orders(report, now)
    if report.waiting:
        print()
        print_table(("WAITING", "REASON"), [(item.run or item.pod, item.reason) for item in report.waiting])
    if report.deeds:
        print()
        deeds = [(format_time(deed.at), deed.text, deed.trouble) for deed in report.deeds[:20]]
        print_table(("TIME", "WHAT", "NOT DONE BECAUSE"), deeds)


def print_orders(report: Report, now: float) -> None:
    """Print pending orders of machines, and the pools and zones in backoff."""
    from longboat.cli.output.tables import print_table
    from longboat.core.times import format_time, show_age

    if report.orders:
        print()
        orders = [
            (
                order.pool,
                order.zone,
                order.count,
                f"{show_age(now - order.asked)} ago",
                format_time(order.expected),
                order.gang,
            )
            for order in report.orders
        ]
        print_table(("ORDERED", "ZONE", "MACHINES", "ASKED", "EXPECTED", "FOR"), orders)
    shut = [(pool.note.pool, backoff) for pool in report.pools for backoff in pool.note.backoffs]
    if shut:
        print()
        rows = [
            (
                pool,
                window.zone,
                window.kind,
                window.count,
                "off" if window.until is None else format_time(window.until),
                window.reason,
            )
            for pool, window in shut
        ]
        print_table(("BACKOFF", "ZONE", "KIND", "IN A ROW", "UNTIL", "REASON"), rows)


def retry(context: str | None, home: str | None, pools: tuple[str, ...]) -> list[str]:
    """Clear the backoff of these pools, or of all; returns the names of those that were in backoff."""
    from longboat.autoscaler.observe.orders import OrderStore

    with opened(context, home) as (client, where):
        return OrderStore(client, where).retry(pools)


def need_pools(pools: str | None) -> str:
    if pools is None:
        hint = "--pools names the file with your pools; --objects FILE looks at a file instead of a cluster"
        raise UsageError("the option --pools is missing", hint=hint)
    return pools
