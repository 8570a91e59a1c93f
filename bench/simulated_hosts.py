"""Hosts beyond those that fit on this machine: they answer what a real one answered, after a round trip of a usual LAN.

A simulated host keeps which steps were carried out on it, and nothing else. Its node is one more line of what the real
control plane lists.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import time

from longboat.clusters.hosts.connection import CommandResult, Content, HostConnection, Line
from longboat.clusters.observe.probe_shell import script as probe

ROUND_TRIP_S = 0.01  # ssh to a host of the same site, with the shell that it starts


class SimulatedHost:
    def __init__(self, name: str, seen: str) -> None:
        """`seen`: what a real host printed when it was looked at."""
        self.name, self.sudo, self.sudo_message = name, "root", ""
        kept = [line for line in seen.splitlines() if not line.startswith(("clock\t", "done\t"))]
        for key in ("hostname", "machine_id", "product_uuid"):
            kept = [f"{key}\t{name}" if line.startswith(f"{key}\t") else line for line in kept]
        self._seen = "\n".join(kept)
        self._done = dict(re.findall(r"^done\t(\S+) (\S+)$", seen, re.MULTILINE))

    def run(
        self, script: str, *, stdin: Content = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        time.sleep(ROUND_TRIP_S)
        self._done |= dict(re.findall(r"^done_with (\S+) (\S+)$", script, re.MULTILINE))
        if script != probe():
            return CommandResult(code=0, stdout="", stderr="")
        done = "".join(f"\ndone\t{name} {key}" for name, key in self._done.items())
        return CommandResult(code=0, stdout=f"clock\t{time.time()}\n{self._seen}{done}\n", stderr="")

    def close(self) -> None: ...


class ControlPlane:
    """A real one, which lists the nodes of simulated hosts too: copies of its last node with another name."""

    def __init__(self, real: HostConnection, nodes: dict[str, tuple[str, str]]) -> None:
        """`nodes`: address and range of pod addresses, by name."""
        self.name, self._real, self._nodes = real.name, real, nodes

    @property
    def sudo(self) -> str:
        return self._real.sudo

    @property
    def sudo_message(self) -> str:
        return self._real.sudo_message

    def run(
        self, script: str, *, stdin: Content = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        result = self._real.run(script, stdin=stdin, as_root=as_root, timeout_s=timeout_s, on_line=on_line)
        if " get nodes -o jsonpath" not in script or result.code != 0:
            return result
        # As longboat.clusters.apply.nodes asks for it: name, pod addresses, ..., addresses, condition, version.
        listed = gzip.decompress(base64.b64decode(result.stdout)).decode()
        last = listed.splitlines()[-1].split("\t")
        for name, (address, pods) in self._nodes.items():
            addresses = json.dumps([{"type": "InternalIP", "address": address}])
            listed += "\n" + "\t".join([name, pods, *last[2:6], addresses, *last[7:]])
        packed = base64.b64encode(gzip.compress(listed.encode())).decode()
        return CommandResult(code=0, stdout=packed, stderr="")

    def close(self) -> None: ...
