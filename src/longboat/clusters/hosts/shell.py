"""The part of a connection that every transport shares: scripts become command lines, as root by sudo where needed."""

from __future__ import annotations

import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

from longboat.clusters.hosts import scripts
from longboat.clusters.hosts.connection import CommandResult, Content, HostUnreachable, Line, NoRoot
from longboat.clusters.hosts.output import ScriptOutput

FIND_SUDO_S = 30.0  # PAM may look up users over a network
GRACE_S = 15.0
"""Past the script's own limit: for `timeout` on the host to kill, and for the answer to come over a slow link."""


class ShellConnection(ABC):
    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._sudo = self._sudo_message = self._password = ""

    @abstractmethod
    def _execute(
        self, command: str, stdin: Iterator[bytes], streams: tuple[ScriptOutput, ScriptOutput], timeout_s: float
    ) -> int | None:
        """Run a command and collect both streams; returns the exit code, or None after the timeout.

        Raises HostUnreachable when the connection breaks, OSError when `stdin` cannot be read to its end.
        """

    @abstractmethod
    def close(self) -> None: ...

    @property
    def sudo(self) -> str:
        """How scripts become root: root, free (no password), password (given and right), asks (none given, or wrong),
        none.
        """
        with self._lock:
            if not self._sudo:
                self._sudo, self._sudo_message = self._find_sudo()
            return self._sudo

    @property
    def sudo_message(self) -> str:
        """Why sudo refuses, in its own words."""
        return self._sudo_message

    def unlock(self, password: str) -> None:
        """Try a sudo password; if it is right, scripts can run as root from then on."""
        tried = self._run(scripts.TRY_PASSWORD, "", iter([f"{password}\n".encode()]), FIND_SUDO_S)
        with self._lock:
            if tried.code == 0:
                self._sudo, self._sudo_message, self._password = "password", "", password
                return
            # The password may be right and the account not allowed to use sudo; the rest is about the number of tries.
            denied = [line for line in tried.stderr.splitlines() if "sudoers" in line or "not allowed" in line]
            self._sudo_message = denied[0][:200] if denied else "sudo refused the password"

    def run(
        self, script: str, *, stdin: Content = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        sudo = self.sudo if as_root else "root"
        if sudo not in scripts.SUDO:
            raise NoRoot(self.name, self._sudo_message)
        first = f"{self._password}\n".encode() if sudo == "password" else b""
        with scripts.chunks(stdin, first) as pieces:
            return self._run(script, scripts.SUDO[sudo], pieces, timeout_s, on_line)

    def _run(
        self, script: str, sudo: str, stdin: Iterator[bytes], timeout_s: float, on_line: Line | None = None
    ) -> CommandResult:
        mark = f"longboat-{secrets.token_hex(8)}"
        command = scripts.command(script, mark=mark, timeout_s=timeout_s, sudo=sudo)
        stdout, stderr = ScriptOutput(mark=mark, on_line=on_line), ScriptOutput(on_line=on_line)
        started = time.monotonic()
        code = self._execute(command, stdin, (stdout, stderr), timeout_s + GRACE_S)
        if code is None or (code in (124, 137) and time.monotonic() - started >= timeout_s):
            raise HostUnreachable(self.name, f"no end within {timeout_s:g} s; it was stopped")
        result = CommandResult(code=code, stdout=stdout.text(), stderr=stderr.text())
        if stdout.after_mark is None:
            said = (result.stderr or result.stdout).strip().splitlines()
            reason = said[-1][:200] if said else f"exit code {code}"
            raise HostUnreachable(self.name, f"the script was not started: {reason}")
        return result

    def _find_sudo(self) -> tuple[str, str]:
        answer = self._run(scripts.FIND_SUDO, "", iter(()), FIND_SUDO_S).stdout.strip()
        way, _, message = answer.partition(" ")
        if way in ("root", "free"):
            return way, ""
        return (way, message[:200]) if way == "asks" else ("none", message[:200] or "sudo gave no answer")
