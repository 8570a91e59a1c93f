"""Host keys: compared with known_hosts files as OpenSSH does; those of a first contact are recorded if asked for."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from longboat.clusters.hosts.connection import HostUnreachable

HostKeys = tuple[Sequence[asyncssh.SSHKey], Sequence[asyncssh.SSHKey], Sequence[asyncssh.SSHKey]]
DEFAULT_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


class HostKeyCheck(asyncssh.SSHClient):
    """Checks the host key of one login and keeps the reason of a refusal."""

    def __init__(self, host: str, files: Sequence[Path], *, alias: str | None = None, accept_new: bool = False) -> None:
        self.host, self.alias, self.accept_new = host, alias, accept_new
        self.files = files
        self.refused: HostUnreachable | None = None
        self.new_key: asyncssh.SSHKey | None = None
        self._name = ""
        self._known: list[asyncssh.SSHKey] = []

    def match(self, host: str, _address: str, port: int | None) -> HostKeys:
        """Look up known keys by name only, as OpenSSH does by default: addresses are reassigned in time."""
        self._name = self.alias or (f"[{host}]:{port}" if port else host)
        known = _parse(tuple(map(_read, self.files)))
        keys, authorities, revoked = known.match(self._name, "", None)[:3]
        self._known = list(keys)
        return keys, authorities, revoked

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        fingerprint = f"{key.get_algorithm()} {key.get_fingerprint()}"
        if self._known:
            self.refused = HostUnreachable(
                self.host,
                f"the host key has changed: it is {fingerprint}, known is {self._known[0].get_fingerprint()}",
                hint=f"somebody may stand in between; if the host was installed anew: ssh-keygen -R '{self._name}'",
            )
            return False
        if not self.accept_new:
            self.refused = HostUnreachable(
                self.host,
                f"the host key is not known yet: {fingerprint}",
                hint="compare it with the host's own, then log in once with ssh or give --accept-new-host-keys",
            )
            return False
        self.new_key = key
        return True

    def record(self) -> None:
        """Store a new key after the login, when the host has proven that it owns it."""
        if self.new_key is None:
            return
        file = self.files[0]
        line = f"{self._name} {self.new_key.export_public_key().decode().strip()}\n"
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "r+b") as known:
                known.seek(0)
                is_open = known.read()[-1:] not in (b"", b"\n")
                known.write((b"\n" if is_open else b"") + line.encode())
        except OSError as error:
            raise HostUnreachable(self.host, f"{file} cannot be written: {error.strerror}") from error


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


@functools.lru_cache(maxsize=4)  # many hosts, the same files; a file that grew by a key is another text
def _parse(texts: tuple[str, ...]) -> asyncssh.SSHKnownHosts:
    """Parse known_hosts files; invalid lines are skipped, as OpenSSH does."""
    lines = []
    for line in "\n".join(texts).splitlines():
        with contextlib.suppress(ValueError):
            asyncssh.import_known_hosts(line)
            lines.append(line)
    return asyncssh.import_known_hosts("\n".join(lines))
