"""What can happen to a running host: its cable is pulled, its logins are cut, it comes back with another host key.

Done from outside, without a login. The power button is `hosts.switch_off`; what is wrong from the start is in `traits`.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator

from testbed import hosts, namespaces, processes
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.hosts import ROOM, Host

_NEW_KEY = """set -e
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key
"""
# The one that listens stays: its title says so. A session has two processes, root's and the user's.
_CUT = """for pid in $(pidof sshd); do
    if ! tr "\\0" " " < /proc/$pid/cmdline | grep -q listener; then kill -9 $pid 2>/dev/null; fi
done
:"""


def run_inside(record: Cluster, host: Host, script: str) -> str:
    """Run a line of shell on the host as root, as if at its console."""
    outer = processes.recorded(record.processes).get(host.name)
    inner = processes.children(outer.pid) if outer and processes.is_alive(outer) else []
    if not inner:
        raise TestbedError(f"{host.name} is off")
    command = ["nsenter", "-t", str(inner[0]), "--all", "--", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": namespaces.SEARCH})
    if done.returncode != 0:
        raise TestbedError(f"{host.name}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def cut_logins(record: Cluster, host: Host) -> None:
    """Every SSH connection ends in the middle of what it does. New ones are welcome."""
    run_inside(record, host, _CUT)


def change_host_key(record: Cluster, host: Host) -> None:
    """From now on the host shows another key than the known one, as a host does that was installed anew."""
    run_inside(record, host, _NEW_KEY)


@contextlib.contextmanager
def unplugged(record: Cluster, host: Host) -> Iterator[None]:
    """The cable is pulled: connections hang half open, and go on if it is plugged in again in time."""
    holder = namespaces.holder_of(record, ROOM)
    if holder is None:
        raise TestbedError(f"the room of {host.name} is gone")
    link = ["ip", "link", "set", f"vb-{host.name}"]
    namespaces.run(holder, [*link, "down"])
    try:
        yield
    finally:
        namespaces.run(holder, [*link, "up"])


@contextlib.contextmanager
def restarting(record: Cluster, host: Host) -> Iterator[None]:
    """A host that is told to reboot comes back: with --keep-unit nspawn leaves that to whoever has started it."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            process = processes.recorded(record.processes).get(host.name)
            if process is not None and not processes.is_alive(process):
                hosts.switch_on(record, host)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
