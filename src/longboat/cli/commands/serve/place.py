"""The services of the engine that a command's options name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longboat.cli.output.terminal import note

if TYPE_CHECKING:
    from longboat.engines.engine import Engine
    from longboat.serving.requests import Services


def open_services(place: Engine) -> Services:
    from longboat.sdk.services import services_of

    return services_of(place, note)
