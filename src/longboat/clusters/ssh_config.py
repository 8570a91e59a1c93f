"""Names of hosts in ~/.ssh/config, for who writes a cluster file. What ssh makes of them is read at the login."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from longboat.clusters.fields.rules import host_fault

DEPTH = 16
"""As far as OpenSSH follows Include in Include."""
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.+?)\s*$")


def ssh_hosts(file: Path) -> tuple[str, ...]:
    """Host names of `Host` lines, without patterns, in the order of the file and its includes."""
    return tuple(dict.fromkeys(name for name in _names(file, DEPTH) if not host_fault(name)))


def _names(file: Path, depth: int) -> Iterator[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        parts = _LINE.match(line)
        if parts is None or parts[1].lower() not in ("host", "include"):
            continue
        try:
            words = shlex.split(parts[2], comments=True)
        except ValueError:  # an open quote: ssh refuses the file, which is told at the login
            continue
        if parts[1].lower() == "host":
            yield from (word for word in words if not set(word) & set("*?!"))
        elif depth:
            for word in words:
                # Relative to ~/.ssh, whatever file it stands in, as OpenSSH has it for a user's own configuration.
                for path in sorted(glob.glob(str(Path("~/.ssh").expanduser() / Path(word).expanduser()))):
                    yield from _names(Path(path), depth - 1)
