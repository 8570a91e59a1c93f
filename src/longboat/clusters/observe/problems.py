"""Problems of hosts, all at once, before anything is touched: what stands against a cluster on them. Pure.

Each check is a function of what is wanted and what was seen. Those of one host are in `host_checks`, `network_checks`
and `gpu_checks`; here are those that compare hosts, and the order.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from longboat.clusters.observe import gpu_checks, host_checks, network_checks
from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.errors import LongboatError

THIS_MACHINE = "this machine"
CLOCK_WARNING_S, CLOCK_ERROR_S = 2.0, 60.0
"""etcd complains from 1 s on and logs cannot be compared; past a minute tokens and certificates are not valid yet."""
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
SEVERITIES = ("error", "repair", "warning")


def find_problems(
    spec: ClusterSpec, facts: Sequence[HostFacts], failures: Mapping[str, LongboatError] | None = None
) -> list[HostProblem]:
    """Problems of all hosts in the order of the cluster file, errors first. `failures`: hosts that cannot be read."""
    seen = {host.name: host for host in facts}
    problems = list(_unreachable(failures or {}))
    for host in spec.hosts:
        problems += _names(host)
        if host.name in seen:
            problems += _of_host(spec, host, seen[host.name])
    problems += [*_clocks(facts), *_twins(facts), *network_checks.one_link(spec, seen)]
    order = {name: number for number, name in enumerate([*(host.name for host in spec.hosts), THIS_MACHINE])}
    return sorted(problems, key=lambda item: (order.get(item.host, -1), SEVERITIES.index(item.severity)))


def _unreachable(failures: Mapping[str, LongboatError]) -> Iterator[HostProblem]:
    for name, error in failures.items():
        message = getattr(error, "reason", None) or error.message
        yield HostProblem(host=name, check="connection", message=message, remedy=error.hint or "")


def _of_host(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Iterator[HostProblem]:
    if facts.sudo in ("asks", "none"):
        # What else was read without root may be wrong.
        yield from host_checks.sudo(spec, host, facts)
        return
    for check in (*host_checks.CHECKS, *network_checks.CHECKS, *gpu_checks.CHECKS):
        yield from check(spec, host, facts)


def _names(host: HostSpec) -> Iterator[HostProblem]:
    if not _NODE_NAME.fullmatch(host.name):
        yield HostProblem(
            host=host.name,
            check="name",
            message=f"{host.name!r} cannot be the name of a node",
            remedy="lower-case letters, digits, `-` and `.`, at most 253: give the host another `name`",
        )


def _clocks(facts: Sequence[HostFacts]) -> Iterator[HostProblem]:
    """Compare the hosts' clocks; two that differ are judged by this machine's."""
    skews = {host.name: host.skew_s for host in facts if host.clock_s}
    usual_s = statistics.median(skews.values()) if len(skews) > 2 else 0.0
    compared = f"{THIS_MACHINE}'s" if len(skews) < 3 else "the other hosts'"
    for name, skew_s in skews.items():
        yield from _clock(name, skew_s - usual_s, compared)
    yield from _clock(THIS_MACHINE, -usual_s, "the hosts'")


def _clock(name: str, off_s: float, compared: str) -> Iterator[HostProblem]:
    if abs(off_s) > CLOCK_WARNING_S:
        side = "ahead of" if off_s > 0 else "behind"
        yield HostProblem(
            host=name,
            check="clock",
            severity="error" if abs(off_s) > CLOCK_ERROR_S else "warning",
            message=f"the clock is {abs(off_s):.0f} s {side} {compared}",
            remedy="synchronize it: timedatectl set-ntp true, or chrony",
        )


def _twins(facts: Sequence[HostFacts]) -> Iterator[HostProblem]:
    """Find cloned machines, and machines listed twice, by machine id, product UUID and host name."""
    fields = (
        ("machine_id", "machine-id", "error", "rm /etc/machine-id; systemd-machine-id-setup; then restart the host"),
        ("product_uuid", "product_uuid", "warning", "give the virtual machines UUIDs of their own"),
        ("hostname", "host name", "warning", "hostnamectl set-hostname NAME, so that logs can be told apart"),
    )  # fmt: skip
    for field, title, severity, remedy in fields:
        owners = defaultdict(list)
        for host in facts:
            owners[getattr(host, field)].append(host.name)
        for value, names in owners.items():
            for name in names[1:] if value else ():
                message = f"the same {title} as {names[0]}: {value}; is it a copy of it, or the same machine?"
                yield HostProblem(host=name, check="twin", severity=severity, message=message, remedy=remedy)
