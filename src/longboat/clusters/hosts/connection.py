"""A connection to one host: runs scripts as root, with input and a time limit. What is said here every transport keeps.

Scripts are POSIX sh. They travel as arguments, which others on the host may read, so secrets go through `stdin`.
Nothing of ours stays on a host after a script but what the script itself makes. Safe for several threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from longboat.core.errors import EngineError
from longboat.core.jobs import Value

Line = Callable[[str], None]
_ERROR = re.compile(r"\s*(error|fatal|E)\b", re.IGNORECASE)


class FilePart(Value, frozen=True):
    """A stretch of a file here, which is streamed: a member of an archive needs no unpacking."""

    path: Path
    offset: int
    size: int


Content = bytes | Path | tuple[bytes | FilePart, ...]
"""What a script reads: text, a whole file here, or pieces of both, one after the other."""


class CommandResult(Value, frozen=True):
    code: int
    stdout: str
    stderr: str


class HostUnreachable(EngineError):
    """The connection failed or broke: the host's state is unknown. `reason` is without the host's name."""

    def __init__(self, host: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{host}: {reason}", hint=hint)
        self.host, self.reason = host, reason


class NoRoot(EngineError):
    """The account cannot become root, or only with a password that was not given."""

    def __init__(self, host: str, reason: str) -> None:
        hint = "give the account sudo without a password, let Longboat ask for it, or log in as root"
        super().__init__(f"{host}: no way to root: {reason}", hint=hint)
        self.host, self.reason = host, reason


class CommandFailed(EngineError):
    """A script returned a non-zero exit code; keeps its last lines."""

    def __init__(self, host: str, result: CommandResult, *, hint: str | None = None) -> None:
        self.host, self.result = host, result
        lines = [line for line in (result.stderr or result.stdout).splitlines() if line.strip()]
        self.last_lines = tuple(lines[-8:])  # what fits under a table; the journal has all of it
        # Programs like to say their error first and then how to learn more about it.
        errors = [line for line in self.last_lines if _ERROR.match(line)]
        reason = (errors or list(self.last_lines) or [f"exit code {result.code}"])[-1].strip()
        super().__init__(f"{host}: {reason}", hint=hint)


class HostConnection(Protocol):
    name: str
    """The host's, for messages."""

    @property
    def sudo(self) -> str: ...

    @property
    def sudo_message(self) -> str: ...

    def run(
        self,
        script: str,
        *,
        stdin: Content = b"",
        as_root: bool = True,
        timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:
        """Run a script to its end. Files of `stdin` are streamed; `on_line` gets lines of stdout and stderr as they
        arrive.

        Raises HostUnreachable after the timeout or when the connection breaks, and NoRoot where root is needed and not
        possible; never for the script's own exit code.
        """

    def close(self) -> None: ...


def check(host: HostConnection, script: str, *, stdin: Content = b"", timeout_s: float = 60.0) -> str:
    """Run a script as root and return its stdout; raises CommandFailed."""
    result = host.run(script, stdin=stdin, timeout_s=timeout_s)
    if result.code != 0:
        raise CommandFailed(host.name, result)
    return result.stdout
