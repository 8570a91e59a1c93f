"""Restarts a host and waits until it answers again, as another boot than before."""

from __future__ import annotations

import time
from pathlib import Path

from longboat.clusters.hosts.connection import HostConnection, HostUnreachable, check
from longboat.core.errors import EngineError

RESTART_S = 900.0  # servers with much memory test it for minutes before they boot
_LOOK_S = 2.0  # a login each time, and a machine takes half a minute at least
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# By a timer of systemd's: the script itself has ended by then, and its connection with it.
_RESTART = "systemd-run -q --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot"


def _own_boot() -> str:
    """Of this machine, under whatever address it is in the cluster file; containers have that of their machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # no Linux, and so no host of a cluster
        return ""


def restart(host: HostConnection, timeout_s: float = RESTART_S) -> None:
    """Restart a host and wait until it is back. Raises HostUnreachable with its last error after the timeout."""
    before = check(host, _BOOT_ID)
    if before.strip() == _own_boot():
        raise EngineError(
            f"{host.name}: it needs a restart, and it is the machine that this command runs on",
            hint="restart it when nobody needs it, then the same command goes on",
        )
    check(host, _RESTART)
    deadline = time.monotonic() + timeout_s
    while True:
        error: EngineError = HostUnreachable(host.name, "still up after it was told to restart")
        try:
            # It reads one file; a host that is going down may not answer.
            if check(host, _BOOT_ID, timeout_s=20) != before:
                return
        except EngineError as failure:  # no connection yet, or no logins as long as it boots
            error = failure
        if time.monotonic() > deadline:
            reason = f"not back {timeout_s:g} s after a restart: {error.message.removeprefix(f'{host.name}: ')}"
            raise HostUnreachable(host.name, reason, hint="look at its console; the same command goes on from there")
        time.sleep(_LOOK_S)
