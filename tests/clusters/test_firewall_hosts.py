"""`firewall: open` on a real host with rules of its own: systemd brings ours back whatever loads the others anew."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from longboat.clusters.apply.execute import perform
from longboat.clusters.apply.step_log import StepLog
from longboat.clusters.apply.undo import audit, undo
from longboat.clusters.hosts.local import LocalConnection
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.plan.system import firewall, journal
from testbed import hosts as machines
from testbed import processes
from testbed.hosts import Group, Host
from tests.clusters.worlds import cluster

SPEC = cluster(workers=0, firewall="open")
LISTEN = "systemd-run -q --unit=listens -p Restart=always python3 -m http.server 10250"
SOON_S = 30.0


class HostShell(LocalConnection):
    """The host, through the ssh of the system."""

    def __init__(self, host: Host) -> None:
        super().__init__(SPEC.hosts[0].name)
        self._host = host

    def _execute(self, command: str, *args: Any) -> int | None:
        return super()._execute(shlex.join(self._host.command(f"sudo sh -c {shlex.quote(command)}")), *args)


def is_open(host: Host, *, within_s: float = SOON_S) -> bool:
    """Whether it lets this machine in, now or soon."""
    until = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection((host.address, 10250), timeout=1).close()
            return True
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(0.2)


@pytest.mark.hosts
@pytest.mark.slow
@pytest.mark.soak
def test_ports_stay_open_after_a_reload_and_a_reboot_until_the_way_back(hosts: Callable[..., Group]) -> None:
    group = hosts(1, "firewall")
    (host,) = group.hosts
    shell = HostShell(host)
    host.run(f"sudo {LISTEN}")
    before = host.run("sudo nft list ruleset")
    assert not is_open(host, within_s=1.0)
    for make in (journal, firewall):
        step = make(SPEC, SPEC.hosts[0], read_facts(shell))
        assert isinstance(step, Step)
        perform(shell, step, b"", StepLog(lambda event: None))
    assert is_open(host)
    opened = host.run("sudo nft list ruleset")
    stop_and_start = "sudo systemctl stop nftables && sudo systemctl start nftables"
    for change in ("sudo systemctl reload nftables", "sudo systemctl restart nftables", stop_and_start):
        host.run(change)
        assert processes.wait_until(lambda: host.run("sudo nft list ruleset") == opened, SOON_S), change
    machines.switch_off(group.record, host)
    machines.switch_on(group.record, host)
    assert processes.wait_until(lambda: machines.answers(host), 90)
    host.run(f"sudo {LISTEN}")
    assert is_open(host)
    assert isinstance(firewall(SPEC, SPEC.hosts[0], read_facts(shell)), Kept)

    undo(shell, on_line=lambda line: None, timeout_s=60)
    assert not is_open(host, within_s=1.0)
    assert host.run("sudo nft list ruleset") == before
    assert audit(shell, SPEC.network.pods).ours == ()
