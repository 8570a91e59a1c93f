"""Detached supervisors: starting those that outlive us, waking them, replacing those that vanished. What a supervisor
does is in `supervisor`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from longboat.core.errors import LongboatError, NotFound
from longboat.core.guards.own_modules import own_program
from longboat.engines.lifecycle.kept_environment import (
    forget_environment,
    keep_environment,
    kept_environment,
    kept_folders,
    session_of,
)
from longboat.engines.local.records import LocalRecord, replace
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.files import LogStream, disk, is_current, open_lock, try_lock, write_bytes, write_value

_PROGRAM = own_program("from longboat.engines.local.supervise.spawn import main; main(sys.argv[1:])", first_root=3)


def import_roots() -> list[str]:
    """Folders of Longboat and msgspec for sys.path, in case only this process has them there."""
    return [str(Path(__file__).parents[4]), str(Path(msgspec.__file__).parents[1])]


def spawn(
    files: RunFiles, lock: int, environment: dict[str, str], *, stdin: int | None = None, may_fork: bool = True
) -> None:
    """Start a supervisor that owns `lock` and outlives us. The caller closes its own copy of the lock.

    `stdin`: it hands this to the run's only rank, the very same file: who reads and who does not is up to the rank.

    Where that is safe it is a fork: an interpreter that has everything imported already, a third of a short run's time.
    `may_fork`: the caller has no signal handlers of its own, which the child would have until it sets others.
    """
    if may_fork and _may_fork():
        with disk("start the supervisor"):
            pid = os.fork()
        if pid == 0:
            _become_supervisor(files, lock, environment, stdin)
    else:
        pid = _execute(files, lock, environment, stdin)
    _children.append(pid)


def _may_fork() -> bool:
    """A fork has only the calling thread; and inside a rank it would carry the rank's mark in /proc for ever."""
    threading = sys.modules.get("threading")
    is_alone = threading is None or threading.active_count() == 1
    return sys.platform.startswith("linux") and is_alone and "LONGBOAT_RUN_UID" not in os.environ


def _become_supervisor(files: RunFiles, lock: int, environment: dict[str, str], stdin: int | None) -> NoReturn:
    """In the child of a fork: keep the modules; `main` closes everything but the lock."""
    code = 1
    try:
        os.setsid()
        log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        given = stdin if stdin is not None else os.open(os.devnull, os.O_RDONLY)
        for number, target in ((0, given), (1, log), (2, log)):
            os.dup2(target, number)
        os.environ.clear()
        os.environ.update(environment)
        main([os.fspath(files.directory), str(lock)])
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _execute(files: RunFiles, lock: int, environment: dict[str, str], stdin: int | None) -> int:
    os.set_inheritable(lock, True)
    log = os.fspath(files.log)
    with disk("start the supervisor"):
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", _PROGRAM, os.fspath(files.directory), str(lock), *import_roots()],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0)
                if stdin is not None
                else (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    os.set_inheritable(lock, False)
    return pid


_children: list[int] = []
"""Supervisors this process started; they are reaped when they end before us."""


def reap_supervisors() -> None:
    for pid in list(_children):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        with contextlib.suppress(ValueError):  # another thread was faster
            _children.remove(pid)


def nap(seconds: float) -> None:
    """Sleep; no longer than until a supervisor ends that this process started: so has its run, most likely."""
    if len(_children) != 1 or not hasattr(os, "pidfd_open"):
        time.sleep(seconds)
        return
    try:
        descriptor = os.pidfd_open(_children[0])
    except OSError:  # an old kernel, or reaped meanwhile by another thread
        time.sleep(seconds)
        return
    try:
        if select.select([descriptor], [], [], seconds)[0]:
            reap_supervisors()
    except ValueError:  # too many open files for select
        time.sleep(seconds)
    finally:
        os.close(descriptor)


def take_over(
    files: RunFiles,
    record: LocalRecord,
    environment: Mapping[str, str],
    notice: Callable[[str], None],
    *,
    may_fork: bool = True,
) -> bool:
    """Start a new supervisor if the run's own has vanished, which its free lock tells. Whether one was started."""
    reap_supervisors()
    if not files.directory.is_dir():
        raise NotFound(f"{record.name} was removed", hint="`longboat ps -a` lists all runs")
    lock = open_lock(files.lock)
    try:
        if not try_lock(lock) or not is_current(lock, files.lock) or files.state(is_alone=True).is_final:
            return False
        files.check_format()
        if not files.is_own():
            notice(f"the supervisor of {record.name} was killed; only its owner starts another one")
            return False
        if files.stored_record() is None:
            _give_up(files)
            forget_environment(record.uid)
            return False
        from longboat.engines.local.recovery import may_respawn

        if not may_respawn(files):
            forget_environment(record.uid)
            return False
        notice(f"the supervisor of {record.name} was killed; a new one takes over and cleans up")
        spawn(files, lock, later_environment(record, environment, files), may_fork=may_fork)
    finally:
        os.close(lock)
    return True


def _give_up(files: RunFiles) -> None:
    """The record is lost, and with it what another attempt would need. The caller holds the run's lock."""
    from longboat.engines.local.rebuilding import DAMAGED_RECORD, rebuilt_state

    known = files.state(is_alone=True)
    state = rebuilt_state(files, files.record(), known, is_alone=True, damaged=DAMAGED_RECORD)
    files.write_state(replace(state, serial=state.serial + 1))


def supervisor_environment(record: LocalRecord, environment: Mapping[str, str]) -> dict[str, str]:
    """The submitter's environment without what marks the ranks of a surrounding run."""
    from longboat.core.variables import is_scrubbed

    kept = {name: value for name, value in environment.items() if not is_scrubbed(name)}
    return {**kept, **record.environment}


def first_environment(record: LocalRecord, environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """For the supervisor that the submission starts; kept for those that take over. `folder`: of the run."""
    submitted = supervisor_environment(record, environment)
    keep_environment(record.uid, os.path.abspath(folder), submitted)
    return submitted


def later_environment(record: LocalRecord, environment: Mapping[str, str], files: RunFiles) -> dict[str, str]:
    """For a supervisor that takes over: that of the submission, never that of the command which looks at the run.

    `environment`: of that command. After a restart of the machine only what the record has is known; secrets that the
    job names are then read anew, here as by `rerun`.
    """
    kept = kept_environment(record.uid)
    if kept is not None:
        return supervisor_environment(record, kept)
    with contextlib.suppress(LongboatError):
        if not files.forgotten.exists():
            write_value(files.forgotten, time.time())
    names = [secret.env or secret.name for secret in record.job.secrets if secret.file is None and secret.store is None]
    secrets = {name: environment[name] for name in names if name in environment}
    return supervisor_environment(record, {**session_of(environment), **secrets})


def forget_removed() -> None:
    """What is kept for runs of this user whose folder was removed by hand; what still runs of one keeps it.

    Of a home that is not mounted no folder is there: only who has the folder of all runs can miss one of them.
    """
    from longboat.engines.local.supervise.processes import marked

    for uid, folder in kept_folders():
        try:
            os.stat(folder)
            record = RunFiles(Path(folder)).stored_record()
            is_removed = record is not None and record.uid != uid  # a later run has its name
        except FileNotFoundError:
            is_removed = os.path.isdir(os.path.dirname(folder))
        except (OSError, LongboatError):  # a file system that is away, or a disk that fails: nobody knows
            is_removed = False
        if is_removed and not marked(uid):
            forget_environment(uid)


def main(arguments: list[str]) -> None:
    """The supervisor's process: RUN-FOLDER LOCK-DESCRIPTOR."""
    from longboat.engines.local.supervise.processes import become_subreaper
    from longboat.engines.local.supervise.supervisor import Supervisor

    directory, lock = Path(arguments[0]), int(arguments[1])
    os.closerange(3, lock)  # what the submitter's parents left open: somebody may wait for its end
    os.closerange(lock + 1, 1024)
    os.set_inheritable(lock, False)
    os.chdir(directory)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    become_subreaper()
    sys.stdout = sys.stderr = LogStream()
    supervisor = Supervisor(directory)
    supervisor.stdin = _take_stdin()
    signal.signal(signal.SIGTERM, _stop_handler(supervisor.files))
    try:
        supervisor.run()
    except Exception as error:
        import traceback

        write_bytes(directory / "crash.txt", traceback.format_exc().encode())
        supervisor.fail_hard(f"the supervisor failed: {error} (see {directory / 'crash.txt'})")
    if supervisor.state.is_final:
        forget_environment(supervisor.record.uid)
        forget_removed()


def _take_stdin() -> int:
    """The submitter's stdin, or /dev/null: for the rank alone, not for what the supervisor runs."""
    taken, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return taken


def _stop_handler(files: RunFiles) -> Callable[[int, object], None]:
    """A shutdown of the machine reaches the supervisor as SIGTERM: stop the run in order."""
    from longboat.engines.shared.stop_request import StopRequest

    def handle(_number: int, _frame: object) -> None:
        files.told_to_stop = StopRequest(at=time.time())  # holds also where the disk is full
        with contextlib.suppress(LongboatError):
            write_value(files.stop, files.told_to_stop, is_durable=True)

    return handle
