"""Processes of a cluster: started detached, marked in their environment, recorded, found again and ended.

The mark (LONGBOAT_TESTBED=<cluster id>) is what `cleanup` goes by, so it is on every process, whatever else was lost.
A record is trusted only together with the process's start time: a number alone may belong to somebody else by now.
Not here: which processes a cluster has.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.errors import TestbedError

MARK = "LONGBOAT_TESTBED"
FOLDER_MARK = "LONGBOAT_TESTBED_FOLDER"
PROC = Path("/proc")
# The shell leaves at once, so that the process belongs to init and nobody has to collect it.
_DETACH = 'exec 3>&1; log=$1; shift; "$@" </dev/null >>"$log" 2>&1 3>&- & echo $! >&3'


@dataclass(frozen=True)
class Process:
    """One running program of a cluster."""

    name: str
    pid: int
    start_ticks: int
    boot_id: str
    log: str


@dataclass(frozen=True)
class Marked:
    """A process that carries a mark, whoever started it."""

    pid: int
    cluster_id: str
    folder: str
    command: str


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot; nothing for one that is gone or only waits to be collected."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def children(pid: int) -> list[int]:
    """Processes this one has started. Read from every process's own line: not every kernel keeps the list."""
    pids = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                pids.append(int(entry.name))
    return pids


def is_alive(process: Process) -> bool:
    return process.boot_id == boot_id() and start_ticks(process.pid) == process.start_ticks


def marks(cluster_id: str, folder: Path) -> dict[str, str]:
    return {MARK: cluster_id, FOLDER_MARK: str(folder)}


def marked(cluster_id: str | None = None) -> list[Marked]:
    """Every living process with a mark, or with this cluster's mark."""
    processes = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        ours = [item.decode(errors="replace") for item in variables if item.startswith(MARK.encode())]
        values = dict(item.partition("=")[::2] for item in ours)
        identity = values.get(MARK)
        if identity and cluster_id in (None, identity) and start_ticks(int(entry.name)) is not None:
            processes.append(Marked(int(entry.name), identity, values.get(FOLDER_MARK, ""), command[:200]))
    return processes


def inner_pid(pid: int) -> int | None:
    """The number a process has in its own PID namespace."""
    try:
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return None


def enter(holder: int | None) -> list[str]:
    """The command that puts what follows into a holder's namespaces (network, mounts, processes, host name)."""
    return [] if holder is None else ["nsenter", "-t", str(holder), "-n", "-m", "-p", "-u", "--"]


@dataclass(frozen=True)
class Launch:
    """What to start and where."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    holder: int | None = None


def start(launch: Launch) -> Process:
    """Start it in a session of its own, with nothing of ours open. Its death is seen by `is_alive`, not here."""
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    command = [*enter(launch.holder), "sh", "-c", _DETACH, "sh", str(launch.log), *launch.arguments]
    done = subprocess.run(
        command, env=dict(launch.environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        start_new_session=True,
    )  # fmt: skip
    if done.returncode != 0 or not done.stdout.strip().isdigit():
        raise TestbedError(f"{launch.name} could not be started: {done.stderr.strip() or done.stdout.strip()}")
    pid = outer_pid(int(done.stdout), launch)
    ticks = start_ticks(pid) if pid else None
    if pid is None or ticks is None:
        raise TestbedError(f"{launch.name} ended at once:\n{tail(launch.log)}")
    return Process(launch.name, pid, ticks, boot_id(), str(launch.log))


def outer_pid(pid: int, launch: Launch) -> int | None:
    """The number out here of a process that was started inside."""
    if launch.holder is None:
        return pid
    pids: list[int] = []

    def is_found() -> bool:
        pids[:] = [process.pid for process in marked(launch.environment[MARK]) if inner_pid(process.pid) == pid]
        pids[:] = [candidate for candidate in pids if pid_space(candidate) == pid_space(launch.holder)]
        return bool(pids)

    # While a process exchanges its program, it shows no environment for a moment.
    wait_until(is_found, 2.0)
    return pids[0] if pids else None


def pid_space(pid: int | None) -> int:
    try:
        return (PROC / str(pid) / "ns/pid").stat().st_ino
    except OSError:
        return -1


def tail(log: Path, lines: int = 20) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"


def send(process: Process, number: signal.Signals) -> bool:
    """Signal this very process; False when it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Looked at after the handle was taken: from here on the number cannot change hands.
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def stop(process: Process, *, grace_s: float = 5.0) -> None:
    """Ask, wait, then kill."""
    if send(process, signal.SIGTERM) and not wait_until(lambda: not is_alive(process), grace_s):
        send(process, signal.SIGKILL)
        wait_until(lambda: not is_alive(process), grace_s)


def kill_marked(cluster_id: str, *, within_s: float = 10.0) -> int:
    """Kill everything that carries this cluster's mark, also what starts meanwhile; how many there were."""
    killed: set[int] = set()
    deadline = time.monotonic() + within_s
    while left := marked(cluster_id):
        if time.monotonic() > deadline:
            raise TestbedError(
                "not to be killed: " + "; ".join(f"pid {process.pid} {process.command}" for process in left)
            )
        for process in left:
            try:
                os.kill(process.pid, signal.SIGKILL)
                killed.add(process.pid)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    return len(killed)


def is_listening(pid: int, port: int) -> bool:
    """Whether somebody in the process's network listens on this TCP port of any address."""
    rows: list[str] = []
    for table in ("tcp", "tcp6"):  # who listens on all addresses is in the second
        try:
            rows += (PROC / str(pid) / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
    return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in rows)


def wait_until(holds: Callable[[], bool], within_s: float, *, every_s: float = 0.02) -> bool:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def record(folder: Path, process: Process) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{process.name}.tmp"
    scratch.write_text(json.dumps(asdict(process)))
    scratch.rename(folder / f"{process.name}.json")


def recorded(folder: Path) -> dict[str, Process]:
    processes = {}
    for file in sorted(folder.glob("*.json")):
        try:
            processes[file.stem] = Process(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            continue
    return processes


def ended(processes: Iterable[Process]) -> list[Process]:
    return [process for process in processes if not is_alive(process)]
