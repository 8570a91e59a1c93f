"""Settings of a new version: those of the service as it is, where no option says otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import pytest

from longboat.cli.commands.serve.start import make_request, start_command
from longboat.core.errors import UsageError
from longboat.core.jobs import Serve

KNOWN = Serve(replicas=2, ready="/ready", ingress="model.example.org")
OF_THE_JOB = Serve(ready="/other")


def served(known: Serve | None, *words: str) -> Serve | None:
    place: Any = SimpleNamespace(
        status=lambda name: SimpleNamespace(name=name, is_replica=False),
        resubmission=lambda run: SimpleNamespace(job=SimpleNamespace(serve=OF_THE_JOB)),
    )
    services: Any = SimpleNamespace(settings=lambda name: known if name == "svc" else None)
    options = start_command.make_context("start", ["run2", "--name", "svc", *words]).params
    return make_request(place, services, "run2", (), options).serve


def test_what_no_option_says_stays_as_the_service_has_it() -> None:
    assert served(KNOWN, "--replicas", "3") == Serve(replicas=3, ready="/ready", ingress="model.example.org")
    assert served(None, "--replicas", "3") == Serve(replicas=3, ready="/other")
    assert served(KNOWN) is None  # all of it as it is


def test_an_ingress_can_be_taken_away() -> None:
    assert served(KNOWN, "--ingress", "") == Serve(replicas=2, ready="/ready")
    with pytest.raises((UsageError, click.UsageError), match="--ingress"):
        served(KNOWN, "--ingress", "a b")
