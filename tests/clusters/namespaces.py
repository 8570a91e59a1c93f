"""A host of network and mount namespaces, with a neighbour: the kernel's own packet filter, and files of its own.

No systemd runs there: `systemctl` is a stand-in that carries out ExecStart and ExecStop of Longboat's units.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.hosts.local import LocalConnection

ADDRESS, NEIGHBOUR, FAR = "192.0.2.1", "192.0.2.2", "198.51.100.1"
FILES = """
mount -t tmpfs tmpfs /var/lib
mkdir -p "$1/etc" "$1/sbin"
cp -a /etc/. "$1/etc"
mount --bind "$1/etc" /etc
mount --bind "$1/sbin" /usr/local/sbin
echo ready
exec sleep 600
"""
SYSTEMCTL = """#!/bin/sh
# A stand-in for systemd: units of Longboat start and stop.
lines() { sed -n "s/^$1=//p" "/etc/systemd/system/$2.service"; }
case "$*" in
*"is-system-running"*) echo running ;;
"restart longboat-"*) sh -ec "$(lines ExecStop "$2"; lines ExecStart "$2")" ;;
"reload longboat-"*) sh -ec "$(lines ExecReload "$2")" ;;
"disable --now longboat-"*) [ ! -e "/etc/systemd/system/$3.service" ] || sh -ec "$(lines ExecStop "$3")" ;;
esac
"""
LISTEN = """
import selectors, socket, sys
chosen = selectors.DefaultSelector()
for port in sys.argv[1:]:
    server = socket.create_server(("", int(port)))
    chosen.register(server, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in chosen.select():
        key.fileobj.accept()[0].close()
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))"


class NamespaceHost(LocalConnection):
    """A host whose scripts run in the namespaces of a process."""

    def __init__(self, process: int, neighbour: int) -> None:
        super().__init__("desk")
        self._process, self._neighbour = process, neighbour

    def _execute(self, command: str, *args: Any) -> int | None:
        return super()._execute(f"nsenter -t {self._process} -n -m /bin/sh -c {shlex.quote(command)}", *args)

    def text(self, script: str) -> str:
        result = self.run(script, timeout_s=60)
        assert result.code == 0, result.stderr
        return result.stdout

    def lets_in(self, port: int, *, address: str = ADDRESS, within_s: float = 5.0) -> bool:
        """Whether the neighbour reaches it. `within_s`: where nothing is expected, a short time will do."""
        command = [sys.executable, "-c", CONNECT, address, str(port), str(within_s)]
        return within(self._neighbour, *command).returncode == 0


def within(process: int, *command: str) -> subprocess.CompletedProcess[str]:
    whole = ["nsenter", "-t", str(process), "-n", *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=60)


@contextlib.contextmanager
def namespace_host(folder: Path, ports: tuple[int, ...]) -> Iterator[NamespaceHost]:
    """A host that listens on `ports`, cabled to its neighbour; behind the host is a network of pods with one of them,
    which listens too.
    """
    if os.geteuid() != 0 or not all(map(shutil.which, ("nft", "iptables", "nsenter", "unshare", "ip"))):
        pytest.skip("needs root, nft, iptables and ip")
    with contextlib.ExitStack() as stack:

        def start(*command: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout and process.stdout.readline() == "ready\n"
            return process

        idle = ("sh", "-c", "echo ready; exec sleep 600")
        private = ("unshare", "--net", "--mount", "--propagation", "private")
        host = start(*private, "sh", "-euc", FILES, "sh", str(folder)).pid
        neighbour, pod = (start("unshare", "--net", *idle).pid for _ in range(2))
        (folder / "sbin" / "systemctl").write_text(SYSTEMCTL)
        (folder / "sbin" / "systemctl").chmod(0o755)
        for process, there, here, subnet in (
            (neighbour, NEIGHBOUR, ADDRESS, 24),
            (pod, "10.244.0.2", "10.244.0.1", 24),
        ):
            link = f"to{process}"
            _check(host, f"ip link add {link} type veth peer name eth0 netns {process}")
            _check(host, f"ip addr add {here}/{subnet} dev {link} && ip link set {link} up && ip link set lo up")
            _check(process, f"ip addr add {there}/{subnet} dev eth0 && ip link set eth0 up && ip link set lo up")
            _check(process, f"ip route add default via {here}")
        _check(host, "sysctl -q -w net.ipv4.ip_forward=1")
        for process in (host, pod):
            start("nsenter", "-t", str(process), "-n", sys.executable, "-c", LISTEN, *map(str, ports))
        yield NamespaceHost(host, neighbour)


def _check(process: int, script: str) -> None:
    result = within(process, "sh", "-ec", script)
    assert result.returncode == 0, result.stderr
