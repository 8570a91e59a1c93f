"""`longboat serve follow`: gives a service of a cluster the next checkpoint of its run, as long as the command runs.

On one machine the supervisor of the service does that, and in a cluster with a controller that does: this is for a
cluster that has none.
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


@click.command("follow", short_help="In a cluster without a controller: follow the checkpoints of its run.")
@click.argument("name")
@engine_options
def follow_command(name: str) -> int:
    """Give a service of a cluster the next checkpoint of its run whenever there is one, until Ctrl-C.

    For a service that was made with --follow, where no controller (`longboat install`) serves its namespace: that one
    does the same. It goes on serving without this command, but stays at its checkpoint. On this machine services follow
    by themselves.
    """
    services = open_services(open_engine())
    status = services.status(name)
    if status.engine == "local":
        raise UsageError(f"{name} is a service of this machine, and follows by itself", hint="longboat serve ls")
    if status.follow is None:
        raise UsageError(f"{name} follows no checkpoints", hint=f"longboat serve {status.run} --name {name} --follow")
    if has_controller(services):
        say(f"longboat: the controller gives {name} its next checkpoints already; to look as well does no harm")
    return attend_following(services, name, quiet=False, is_done_by_controller=False)


def has_controller(services: Services) -> bool:
    """Whether somebody in the cluster gives services their next checkpoints."""
    from longboat.serving.kubernetes.services import ClusterServices

    return isinstance(services, ClusterServices) and services.has_controller()


def tell_following(services: Services, name: str, *, quiet: bool) -> None:
    """After -d, in a cluster without a controller: who is to go on."""
    status = services.status(name)
    if status.engine == "local" or status.follow is None or quiet or has_controller(services):
        return
    command = placed(f"longboat serve follow {name}")
    note(f"no controller serves this namespace (longboat install): {name} follows checkpoints while {command} runs")


def attend_following(services: Services, name: str, *, quiet: bool, is_done_by_controller: bool = True) -> int:
    """Follow until Ctrl-C, or until the service follows no more; a bad checkpoint and a lost cluster end nothing.

    A controller that does it is left to it.
    """
    from longboat.serving.kubernetes.following import LOOK_S
    from longboat.serving.kubernetes.services import ClusterServices

    if not isinstance(services, ClusterServices) or services.status(name).follow is None:
        return 0
    if is_done_by_controller and has_controller(services):
        return 0
    if not quiet:
        say(f"longboat: follows the checkpoints of {services.status(name).run} until Ctrl-C; {name} goes on")
    problem = ""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            trouble = ""
            try:
                if not services.exists(name) or services.status(name).follow is None:
                    return 0
                step = services.follow(name)
                if step is not None and not quiet:
                    say(f"longboat: {name} goes on to step {step}")
                status = services.status(name)
                trouble = status.reason if status.phase in ("degraded", "failed") else ""
            except LongboatError as error:  # the cluster is away, the pods are: the next look may see more
                trouble = error.message
            if trouble and trouble != problem:
                note(f"{name}: {clean(trouble)}")
            problem = trouble
            time.sleep(LOOK_S)
    return 0
