"""What holds for all logins of one command: where options and known keys come from, and who is asked for a password."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

AskPassword = Callable[[], str | None]
"""The password for sudo; None where nobody can be asked. Called once for all hosts, by the thread that connects."""
CONFIGS = (Path("~/.ssh/config"), Path("/etc/ssh/ssh_config"))
KEEPALIVE_S = 10.0
"""Three without an answer end a connection: a dead host is noticed within 30 s."""


@dataclass(frozen=True)
class LoginSettings:
    configs: tuple[Path, ...] = CONFIGS
    """As OpenSSH reads them: the first value holds."""
    accept_new_host_keys: bool = False
    ask_password: AskPassword = lambda: None
    keepalive_s: float = KEEPALIVE_S

    def readable_configs(self) -> list[str]:
        files = [path.expanduser() for path in self.configs]
        return [str(file) for file in files if file.is_file()]
