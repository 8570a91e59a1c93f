"""Attached services: the log live, what happens on stderr; Ctrl-C stops the service."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from longboat.cli.output.log_printer import LinePrinter
from longboat.cli.output.terminal import clean, say
from longboat.core.errors import LongboatError, NotFound, Refused
from longboat.core.runs import LogQuery

if TYPE_CHECKING:
    from longboat.serving.requests import Services
    from longboat.serving.service_status import ServiceStatus

LOOK_S = 0.5  # somebody watches; each look reads a few small files, or a few objects


def words_of(status: ServiceStatus) -> str:
    reason = f": {clean(status.reason)}" if status.reason else ""
    return f"longboat: {status.name} is {status.phase}, {status.ready} of {status.replicas} ready{reason}"


def show_rollout(services: Services, name: str, *, quiet: bool) -> None:
    """Wait for a new version, and say how far it is. Raises Refused where it failed."""
    over = threading.Event()
    watcher = threading.Thread(target=_tell, args=(services, name, over), daemon=True)
    if not quiet:
        watcher.start()
    try:
        status = services.wait(name)
    finally:
        over.set()
    if not quiet:
        say(words_of(status))


def _tell(services: Services, name: str, over: threading.Event) -> None:
    shown = ""
    while not over.wait(LOOK_S):
        try:
            words = words_of(services.status(name))
        except NotFound:
            say(f"longboat: {name} was stopped")
            return
        except LongboatError:  # the cluster is away for a moment; whoever waits tells it where that lasts
            continue
        if words != shown and not over.is_set():
            shown = words
            say(words)


def attach_service(services: Services, name: str, *, quiet: bool) -> int:
    """Show the log until the service ends or Ctrl-C stops it."""
    over = threading.Event()
    if not quiet:
        threading.Thread(target=_tell, args=(services, name, over), daemon=True).start()
    printer = LinePrinter(prefixes=True)
    reader = threading.Thread(target=_print_lines, args=(services, name, printer), daemon=True)
    reader.start()
    try:
        while services.exists(name):
            check_failed(services, name)
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        over.set()
        if not quiet:
            say(f"longboat: stops {name}")
        services.stop(name)
    finally:
        over.set()
    return 0


def check_failed(services: Services, name: str) -> None:
    """End a service of which nothing will ever answer, with the reason."""
    try:
        status = services.status(name)
    except NotFound:
        return  # stopped this moment
    if status.phase == "failed":
        services.stop(name)
        raise Refused(f"{name}: {status.reason}", hint="the service was stopped; its log is above")


def _print_lines(services: Services, name: str, printer: LinePrinter) -> None:
    with contextlib.suppress(LongboatError):  # it is being stopped
        for line in services.logs(name, LogQuery(follow=True)):
            printer(line)
