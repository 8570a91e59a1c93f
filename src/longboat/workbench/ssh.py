"""ssh to a workbench run: the key of this user for all of them, and the entry of an ssh configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.engines.shared.files import locked, make_folder
from longboat.engines.shared.home import Home

USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
"""What useradd(8) makes at most. A pod says who its user is, and a line break in it would be a line of ours."""


class ClientKey(Value, frozen=True):
    path: str
    public: str


def client_key(home: Home) -> ClientKey:
    """The key pair of this home, made when it is first needed; readable by its owner only."""
    folder = make_folder(home.root / "ssh")
    path = folder / "id_ed25519"
    with locked(folder / ".lock"):
        if not path.exists():
            _make(path)
    return ClientKey(path=str(path), public=Path(f"{path}.pub").read_text().strip())


def _make(path: Path) -> None:
    keygen = shutil.which("ssh-keygen")
    if keygen is None:
        raise EngineError("there is no ssh-keygen on this machine", hint="the package is openssh-client")
    words = [keygen, "-q", "-t", "ed25519", "-N", "", "-C", "longboat", "-f", os.fspath(path)]
    made = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if made.returncode:
        raise EngineError(f"cannot make a key for ssh: {made.stderr.strip()}")


def host_block(run: str, user: str, proxy: str, key: str) -> str:
    """The entry of ssh_config(5). The host is known by the way to it: the API server, or this machine.

    Raises EngineError for a user that is no name: the run says it, and this is a file that can start programs."""
    if not USER_NAME.fullmatch(user):
        raise EngineError(
            f"the user of {run} has no name in its image that ssh can use",
            hint="an image with an entry for it in /etc/passwd, of letters, digits, `_`, `.` and `-`",
        )
    lines = {
        "User": user,
        "ProxyCommand": proxy.replace("%", "%%"),  # else ssh takes it for one of its tokens
        "IdentityFile": '"{}"'.format(key.replace("%", "%%")),
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
    }
    return f"Host longboat-{run}\n" + "".join(f"    {name} {value}\n" for name, value in lines.items())
