"""`longboat serve ls|logs|stop|scale|promote`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from longboat.cli.commands.serve.place import open_services
from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, show
from longboat.cli.output.log_printer import LinePrinter
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import clean, say
from longboat.cli.output.times import show_duration
from longboat.core.errors import UsageError
from longboat.core.runs import LogQuery

if TYPE_CHECKING:
    from longboat.serving.service_status import ServiceStatus


@click.command("ls", short_help="List services.")
@output_option()
@engine_options
def list_command(output: str) -> None:
    """List services: address, replicas, and the run and step that each serves."""
    statuses = open_services(open_engine()).list()
    if not statuses and output in ("table", "wide"):
        say("no services: longboat serve RUN -- python app.py --port '$PORT' starts one")
        return
    show(statuses, output, record=plain, tables=lambda wide: print_services(statuses, wide=wide))


def print_services(services: Sequence[ServiceStatus], *, wide: bool) -> None:
    with_follow = wide or any(service.follow for service in services)
    with_canary = wide or any(service.canary for service in services)
    head = ["NAME", "PHASE", "READY", "RUN", "STEP", *(["FOLLOWS"] if with_follow else []), "URL", "AGE"]
    head += ["CANARY"] if with_canary else []
    more = ["IN FLIGHT", "ANSWERED", "LOST", "USER"]
    rows: list[list[object]] = []
    for service in services:
        ready = f"{service.ready}/{service.replicas}"
        age = show_duration(time.time() - service.created)
        follow = [service.follow] if with_follow else []
        cells: list[object] = [service.name, service.phase, ready, service.run, service.step, *follow, service.url, age]
        if with_canary:
            cells.append(f"{service.canary} {service.weight}%" if service.canary else None)
        if wide:
            cells += [service.in_flight, service.answered, service.lost, service.user]
        rows.append([*cells, service.reason])
    print_table([*head, *(more if wide else []), "INFO"], rows)


@click.command("logs", short_help="Print the logs of replicas.")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Follow until Ctrl-C.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each replica.")
@click.option("--events", is_flag=True, help="What happened to the service instead of the replicas' output.")
@engine_options
def logs_command(name: str, follow: bool, tail: int | None, events: bool) -> None:
    """Print the log of a service's replicas, the last that ended included."""
    services = open_services(open_engine())
    if events:
        for text in services.events(name):
            print(clean(text))
        return
    printer = LinePrinter(prefixes=True)
    for line in services.logs(name, LogQuery(follow=follow, tail=tail)):
        printer(line)
    printer.close()


@click.command("stop", short_help="Stop services.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@engine_options
def stop_command(names: Sequence[str]) -> None:
    """Stop services: requests in flight are answered first. Checkpoints of the runs stay. Prints their names."""
    services = open_services(open_engine())
    for name in dict.fromkeys(names):
        services.stop(name)
        print(name)


@click.command("scale", short_help="Change the number of replicas.")
@click.argument("name")
@click.argument("replicas", metavar="N|MIN-MAX")
@engine_options
def scale_command(name: str, replicas: str) -> None:
    """Set the number of replicas: 3, or 1-4 to scale by requests in flight. One replica always stays."""
    least, dash, most = replicas.partition("-")
    if not all(text.isascii() and text.isdigit() for text in ([least, most] if dash else [least])):
        raise UsageError(f"{replicas!r} is not a number of replicas", hint="3, or 1-4 to scale between")
    low, high = int(least), int(most) if dash else None
    if high is not None and high < low:
        raise UsageError(f"{replicas!r}: the second is the most", hint=f"{high}-{low}")
    if not 1 <= low <= (high or low) <= 1000:
        raise UsageError(f"{replicas!r}: expected 1 to 1000 replicas", hint="`longboat serve stop` ends a service")
    open_services(open_engine()).scale(name, low, high)


@click.command("promote", short_help="Let a canary take over, or change its share.")
@click.argument("name")
@click.option("--weight", type=click.IntRange(0, 99), metavar="PERCENT", help="Another share instead; 0 ends it.")
@click.option("-d", "--detach", is_flag=True, help="Return at once.")
@engine_options
def promote_command(name: str, weight: int | None, detach: bool) -> None:
    """Let the canary of a service take all requests, replica by replica."""
    from longboat.cli.commands.serve.attach import show_rollout

    services = open_services(open_engine())
    services.promote(name, weight)
    if not detach:
        show_rollout(services, name, quiet=False)
