"""Detached supervisors of services: starting one that outlives us, and its process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from longboat.core.errors import LongboatError
from longboat.core.guards.own_modules import own_program
from longboat.engines.local.supervise.processes import is_alive
from longboat.engines.local.supervise.spawn import import_roots
from longboat.engines.shared.files import LogStream, disk, is_current, log_line, open_lock, remove_tree, try_lock
from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import read_secrets
from longboat.serving.local.records import ServiceFolder, WantedService

_PROGRAM = own_program("from longboat.serving.local.spawn import main; main(sys.argv[1:])", first_root=4)

MOST_FILES = 16384
"""Open files of a supervisor: two for each of the most clients the proxy takes, and as many again. Not all that the
system allows: replicas inherit it, and some programs close or count every descriptor they could have."""

LEAVE_S = 10.0
"""A supervisor that was told to end does so after its turn."""


def supervise(folder: ServiceFolder, wanted: WantedService, environment: Mapping[str, str]) -> bool:
    """Start a supervisor where none lives, which the free lock tells. Whether one was started. Raises EngineError, also
    where the caller has not the secrets that replicas need: the supervisor would have only what he has.

    Not for a service of another user: its commands would run with the caller's rights.
    """
    environment = {**environment, **wanted.environment}
    if not folder.is_own():
        return False
    lock = open_lock(folder.lock)
    try:
        if not try_lock(lock) or not is_current(lock, folder.lock):
            return False
        if not folder.is_stopping():
            check_secrets(folder, wanted, environment)
        _spawn(folder, lock, environment)
    finally:
        os.close(lock)
    return True


def check_secrets(folder: ServiceFolder, wanted: WantedService, environment: Mapping[str, str]) -> None:
    """Raises EngineError where a secret of a version that serves is missing in this environment."""
    state = folder.state()
    used = {wanted.current if wanted.current not in state.failed else state.good, wanted.canary}
    for version in wanted.versions:
        if version.number in used:
            read_secrets(folder.home, version.job.secrets, environment)


def leave_to_caller(folder: ServiceFolder, wanted: WantedService, environment: Mapping[str, str]) -> None:
    """End a supervisor that lacks a secret which the caller has; replicas go on, and the caller starts another one."""
    supervisor = folder.state().supervisor
    if supervisor is None or not is_alive(supervisor):
        return
    try:
        pairs = Path(f"/proc/{supervisor.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return
    given = dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)
    if _lacks(folder, wanted, given) and not _lacks(folder, wanted, {**environment, **wanted.environment}):
        with contextlib.suppress(OSError):
            os.kill(supervisor.pid, signal.SIGTERM)
        deadline = time.monotonic() + LEAVE_S
        while folder.is_supervised() and time.monotonic() < deadline:
            time.sleep(0.01)


def _lacks(folder: ServiceFolder, wanted: WantedService, environment: Mapping[str, str]) -> bool:
    try:
        check_secrets(folder, wanted, environment)
    except LongboatError:
        return True
    return False


def _spawn(folder: ServiceFolder, lock: int, environment: Mapping[str, str]) -> None:
    from longboat.core.variables import is_scrubbed

    kept = {name: value for name, value in environment.items() if not is_scrubbed(name)}
    log = os.fspath(folder.log)
    os.set_inheritable(lock, True)
    arguments = [os.fspath(folder.home.root), folder.name, str(lock), *import_roots()]
    with disk("start the supervisor of the service"):
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", _PROGRAM, *arguments],
            kept,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    os.set_inheritable(lock, False)


def main(arguments: list[str]) -> None:
    """The supervisor's process: HOME SERVICE LOCK-DESCRIPTOR."""
    from longboat.serving.local.supervisor import ServiceSupervisor

    home, name, lock = Home(Path(arguments[0])), arguments[1], int(arguments[2])
    os.closerange(3, lock)  # what the parents of whoever started us left open: somebody may wait for its end
    os.closerange(lock + 1, 1024)
    os.set_inheritable(lock, False)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdout = sys.stderr = LogStream()
    raise_file_limit()
    folder = ServiceFolder(home, name)
    os.chdir(folder.directory)
    try:
        supervisor = ServiceSupervisor(folder)
        asyncio.run(supervisor.run())
    except (LongboatError, OSError) as error:
        log_line(f"the supervisor failed: {error}")
        os._exit(1)
    if folder.is_stopping():
        os.chdir("/")
        remove_tree(folder.directory)
    os._exit(0)  # threads that wait for an answer are not waited for


def raise_file_limit() -> None:
    """The usual 1024 open files are used up by 400 clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
