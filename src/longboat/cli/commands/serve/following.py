"""`longboat serve follow`: gives a service of a cluster the next checkpoint of its run, as long as the command runs.

On one machine the supervisor of the service does that. A cluster has nobody who could: the controller makes no
Deployments, and gets no rights for it.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click

from longboat.cli.commands.serve.place import open_services
from longboat.cli.input.engine_option import engine_options, open_engine, placed
from longboat.cli.output.terminal import clean, note, say
from longboat.core.errors import LongboatError, UsageError

if TYPE_CHECKING:
    from longboat.serving.requests import Services


@click.command("follow", short_help="In a cluster: follow the checkpoints of its run.")
@click.argument("name")
@engine_options
def follow_command(name: str) -> int:
    """Give a service of a cluster the next checkpoint of its run whenever there is one, until Ctrl-C.

    For a service that was made with --follow. It goes on serving without this command, but stays at its checkpoint.
    On this machine services follow by themselves.
    """
    services = open_services(open_engine())
    status = services.status(name)
    if status.engine == "local":
        raise UsageError(f"{name} is a service of this machine, and follows by itself", hint="longboat serve ls")
    if status.follow is None:
        raise UsageError(f"{name} follows no checkpoints", hint=f"longboat serve {status.run} --name {name} --follow")
    return attend_following(services, name, quiet=False)


def tell_following(services: Services, name: str, *, quiet: bool) -> None:
    """After -d, in a cluster: who is to go on."""
    status = services.status(name)
    if status.engine != "local" and status.follow is not None and not quiet:
        note(f"{name} follows checkpoints while {placed(f'longboat serve follow {name}')} runs")


def attend_following(services: Services, name: str, *, quiet: bool) -> int:
    """Follow until Ctrl-C, or until the service follows no more; a bad checkpoint and a lost cluster end nothing."""
    from longboat.serving.kubernetes.services import RUNNING_S, ClusterServices

    if not isinstance(services, ClusterServices) or services.status(name).follow is None:
        return 0
    if not quiet:
        say(f"longboat: follows the checkpoints of {services.status(name).run} until Ctrl-C; {name} goes on")
    problem = ""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            pause_s, trouble = RUNNING_S, ""
            try:
                if not services.exists(name) or services.status(name).follow is None:
                    return 0
                rest_s = services.follow_pause_s(name)
                step = services.follow(name)
                if step is not None and not quiet:
                    say(f"longboat: {name} goes on to step {step}")
                status = services.status(name)
                pause_s = rest_s if status.phase in ("ready", "degraded") and step is None else RUNNING_S
                trouble = status.reason if status.phase in ("degraded", "failed") else ""
            except LongboatError as error:  # the cluster is away, the run was removed: the next look may see more
                trouble = error.message
            if trouble and trouble != problem:
                note(f"{name}: {clean(trouble)}")
            problem = trouble
            time.sleep(pause_s)
    return 0
