"""Hosts of a cluster as a command meets them: connected, looked at, and judged before anything is touched."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from longboat.cli.input.sudo_password import ask_password
from longboat.cli.output.terminal import clean, paint, say
from longboat.clusters.apply.step_log import STEPS_FILE
from longboat.clusters.hosts.connection import NoRoot
from longboat.clusters.hosts.pool import Hosts, connect
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.observe.identity import identify
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.observe.problems import find_problems
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.clusters.spec_store import load_spec
from longboat.core.errors import EngineError, LongboatError
from longboat.core.words import counted
from longboat.engines.shared.files import make_folder, open_lock, try_lock
from longboat.engines.shared.home import Home

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ClusterSession:
    spec: ClusterSpec
    hosts: Hosts
    facts: Mapping[str, HostFacts]
    unreachable: Mapping[str, LongboatError]
    home: Home

    @property
    def logs(self) -> Path:
        """The folder with a log file per host."""
        return logs_of(self.spec, self.home)

    def check(self, more: Sequence[HostProblem] = ()) -> None:
        """Print the problems of all hosts, and `more`; raises EngineError before any change if one is an error."""
        names = {host.name for host in self.spec.hosts}
        seen = [facts for name, facts in self.facts.items() if name in names]
        problems = [*find_problems(self.spec, seen, self.unreachable), *more]
        for problem in problems:
            colour = {"error": "red", "repair": "cyan", "warning": "yellow"}[problem.severity]
            word = paint(f"{problem.severity}:", colour, sys.stderr)
            say(f"{word} {problem.host}: {clean(problem.message)}")
            if problem.remedy:
                say(f"  {clean(problem.remedy)}")
        errors = sum(problem.severity == "error" for problem in problems)
        if errors:
            raise EngineError(f"{counted(errors, 'problem')} of the hosts: nothing was changed", hint="see above")


def logs_of(spec: ClusterSpec, home: Home) -> Path:
    return make_folder(home.folder("clusters") / f"{spec.name}.logs")


def login_options(function: F) -> F:
    return click.option(
        "--accept-new-host-keys",
        is_flag=True,
        help="Trust the keys of unknown hosts; a changed key is refused.",
    )(function)


@contextlib.contextmanager
def alone(spec: ClusterSpec, home: Home) -> Iterator[None]:
    """Refuse a second command that changes the cluster from here: of two that begin it each would give it an id."""
    logs = logs_of(spec, home)
    descriptor = open_lock(logs / "lock")
    try:
        if not try_lock(descriptor):
            hint = f"wait for it; what it does is in {logs / STEPS_FILE}"
            raise EngineError(f"another longboat cluster command works on {spec.name}", hint=hint)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_session(
    spec: ClusterSpec, accept_new_host_keys: bool, leaving: Sequence[HostSpec] = (), *, changes: bool = False
) -> Iterator[ClusterSession]:
    """Connect to all hosts and read their facts. `leaving`: hosts that are no longer in the file. `changes`: the
    command may change hosts.
    """
    settings = LoginSettings(accept_new_host_keys=accept_new_host_keys, ask_password=ask_password)
    with (
        alone(spec, Home()) if changes else contextlib.nullcontext(),
        connect([*spec.hosts, *leaving], settings) as hosts,
    ):
        answers = hosts.each(read_facts)
        for name, facts in list(answers.values.items()):
            if facts.sudo in (
                "asks",
                "none",
            ):  # the journal is root's: without it a host looks as if it had nothing of ours
                del answers.values[name]
                answers.errors[name] = NoRoot(name, facts.sudo_message or "sudo asks for a password")
        home = Home()
        spec, judged = identify(spec, answers.values, load_spec(spec.name, home))
        yield ClusterSession(spec, hosts, judged, answers.errors, home)
