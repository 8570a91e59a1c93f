"""Reads all facts of a host in one round trip, as root where it can."""

from __future__ import annotations

import time

import msgspec

from longboat.clusters.hosts.connection import CommandFailed, HostConnection
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.parse import parse
from longboat.clusters.observe.probe_shell import END, script
from longboat.core.errors import EngineError

PROBE_S = 120.0  # several programs that hang, each cut off after 15 s, on a host that is slow anyway


def read_facts(host: HostConnection) -> HostFacts:
    """Probe a host. Raises HostUnreachable or CommandFailed."""
    is_root = host.sudo not in ("asks", "none")
    sent_s = time.time()
    result = host.run(script(), as_root=is_root, timeout_s=PROBE_S)
    received_s = time.time()
    if "clock\t" not in result.stdout:
        raise CommandFailed(host.name, result, hint="the host must have a POSIX shell and coreutils")
    if END not in result.stdout.splitlines():
        raise EngineError(f"{host.name}: what it says of itself was cut off", hint="the same command again")
    facts = parse(host.name, result.stdout, sent_s=sent_s, received_s=received_s)
    return msgspec.structs.replace(facts, sudo=host.sudo, sudo_message=host.sudo_message)
