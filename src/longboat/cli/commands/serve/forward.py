"""`longboat serve forward`: a port of this machine that leads to a service of a cluster."""

from __future__ import annotations

import threading

import click

from longboat.cli.commands.serve.place import open_services
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.terminal import note, say


@click.command("forward", short_help="Reach a service of a cluster from here.")
@click.argument("name")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port of this machine; a free one otherwise.")
@engine_options
def forward_command(name: str, port: int | None) -> None:
    """Lead a port of this machine to a service, through the API server, until Ctrl-C. Prints the URL.

    Each connection dials a replica that is ready: it outlasts updates, killed replicas and a laptop that slept.
    """
    place = open_engine()
    services = open_services(place)
    if place.name == "local":
        print(services.status(name).url)
        note("a service of this machine has an address of its own")
        return
    from longboat.cli.commands.serve.service_forward import ServiceForward
    from longboat.serving.kubernetes.services import ClusterServices

    assert isinstance(services, ClusterServices)
    with ServiceForward(services, name, port) as forward:
        forward.check()
        print(f"http://127.0.0.1:{forward.port}", flush=True)
        say(f"longboat: {name} is reached there until Ctrl-C")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return
