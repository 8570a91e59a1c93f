"""What is asked of services, whatever engine they are on: the request of a version, and what can be done with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from longboat.core.errors import UsageError
from longboat.core.jobs import Command, Serve, Value
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.shared.home import STEM_LIMIT, check_run_id
from longboat.serving.service_status import ServiceStatus
from longboat.storage.inventory.entries import WANTED


class ServiceRequest(Value, frozen=True):
    """What is to be served, and how; None: as the run's job says, or as it is."""

    run: str
    step: int | None = None
    name: str | None = None
    command: Command | None = None
    serve: Serve | None = None  # instead of that of the run's job
    host: str | None = None
    port: int | None = None
    with_checkpoint: bool = True
    weight: int | None = None  # of a canary; None: it replaces what is served
    fresh_code: bool = False  # the code as its folder has it now, instead of that of the run
    is_followed: bool = False  # the step is one that a service follows, and was named by nobody

    @property
    def service_name(self) -> str:
        return self.name or self.run[:STEM_LIMIT].rstrip("-")

    def check_name(self) -> None:
        check_run_id(self.service_name)
        if len(self.service_name) > STEM_LIMIT:
            raise UsageError(
                f"{self.service_name!r} is too long for a service", hint=f"--name, at most {STEM_LIMIT} characters"
            )


class Services(Protocol):
    """The services of one engine."""

    def exists(self, name: str) -> bool: ...

    def settings(self, name: str) -> Serve | None:
        """How the service of this name is served; None: there is none."""

    def serve(self, request: ServiceRequest) -> str:
        """Make the service, or give an existing one a new version; returns its name once it can be asked."""

    def promote(self, name: str, weight: int | None = None) -> None:
        """Let the canary take everything; or give it another weight, 0 ends it."""

    def scale(self, name: str, least: int, most: int | None) -> None: ...

    def list(self) -> Sequence[ServiceStatus]: ...

    def status(self, name: str) -> ServiceStatus:
        """Raises NotFound."""

    def wait(self, name: str, *, timeout_s: float | None = None) -> ServiceStatus:
        """Until every replica of the wanted version is ready. Raises Refused where that version failed."""

    def logs(self, name: str, query: LogQuery) -> Iterator[LogLine]: ...

    def events(self, name: str) -> Sequence[str]: ...

    def stop(self, name: str) -> None:
        """End the service and everything of it; returns when nothing is left."""


def parse_target(text: str) -> tuple[str, str]:
    """RUN, RUN:STEP, RUN:newest or RUN:promoted; the second is a number or a word, empty where nothing is said."""
    run, colon, wanted = text.partition(":")
    match = WANTED.fullmatch(wanted)
    if colon and match is None:
        raise UsageError(
            f"{text!r}: {wanted!r} is not a step", hint=f"{run}:STEP, for example {run}:200; {run}:promoted"
        )
    return run, (match[1] or wanted) if match else ""
