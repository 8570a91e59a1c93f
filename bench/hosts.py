"""Hosts over SSH: logins and facts of one, of four at once, of ten; a step that waits, on one and on four.

python bench/hosts.py      needs root: the hosts are the testbed's, all on this machine's cores
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from longboat.clusters.hosts.pool import Hosts, connect
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.spec import HostSpec
from testbed import cleanup, hosts

NAME, TIMES, STEP_S = "bench-hosts", 5, 2


def taken_s(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def measure() -> dict[str, float]:
    if hosts.missing():
        return {}
    try:
        group = hosts.up(NAME, 4)
        settings = LoginSettings(configs=(group.hosts[0].config,))
        specs = [HostSpec(name=host.name, address=host.name) for host in group.hosts]
        ten = [HostSpec(name=f"{number}", address=specs[number % 4].address) for number in range(10)]
        return {**of_specs(specs, settings), **of_ten(ten, settings)}
    finally:
        cleanup.down(NAME)


def of_specs(specs: list[HostSpec], settings: LoginSettings) -> dict[str, float]:
    def step(opened: Hosts) -> None:
        opened.each(lambda host: host.run(f"sleep {STEP_S}")).checked()

    def facts(opened: Hosts) -> None:
        opened.each(read_facts).checked()

    result = {}
    for title, work in ((f"a step of {STEP_S} s", step), ("all facts", facts)):
        alone = max(on_hosts_s([spec], settings, work) for spec in specs)
        together = on_hosts_s(specs, settings, work)
        result |= {f"{title}, the slowest host alone, s": alone, f"{title}, 4 hosts, s": together}
        result[f"{title}: 4 hosts / the slowest alone"] = together / alone
    return result


def on_hosts_s(specs: list[HostSpec], settings: LoginSettings, work: Callable[[Hosts], None]) -> float:
    with connect(specs, settings) as opened:
        return usual_s(lambda: work(opened))


def of_ten(specs: list[HostSpec], settings: LoginSettings) -> dict[str, float]:
    def whole() -> None:
        with connect(specs, settings) as opened:
            opened.each(read_facts).checked()

    return {"10 logins and all facts, s": usual_s(whole)}


def usual_s(work: Callable[[], object]) -> float:
    work()  # what is read for the first time comes from the disk
    return statistics.median(taken_s(work) for _ in range(TIMES))


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:50} {value:.3f}")
