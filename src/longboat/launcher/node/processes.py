"""Processes: starting programs; finding, measuring and ending process trees. It decides nothing.

Linux: the launcher is a sub-reaper, so whatever a rank leaves behind, double-forked or not, is a descendant of the
launcher until it is gone. Elsewhere: process groups, best effort.
"""

from __future__ import annotations

import os
import time

from . import cgroups
from .jsonfiles import read_bytes
from .libc import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

_PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
MOST_OPEN_FILES = 1 << 20
"""Where the hard limit is higher still, programs that close every descriptor up to it would take minutes."""
HAS_PROC = os.path.isdir("/proc/self")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DEFAULTED = tuple(
    getattr(signal, name)
    for name in "SIGPIPE SIGXFSZ SIGTERM SIGINT SIGQUIT SIGHUP SIGUSR1 SIGUSR2 SIGCHLD".split()
    if hasattr(signal, name)
)


class StartError(Exception):
    """A program cannot be started; `exit_code` as in a shell: 127 not found, 126 not executable."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def find_program(name: str, path: str) -> str:
    """Search a program in PATH. Raises StartError."""
    if "/" in name:
        try:
            os.stat(name)
        except PermissionError as error:  # of a folder on the way: whether the program is there cannot be seen
            raise StartError("%s: %s" % (name, error.strerror), 126) from None
        except OSError:
            raise StartError("%s: no such file" % name, 127) from None
        candidates = [name]
    else:
        candidates = [os.path.join(folder or ".", name) for folder in path.split(":")]
    existing = [file for file in candidates if os.path.isfile(file)]
    for file in existing:
        if os.access(file, os.X_OK):
            return file
    if existing:
        raise StartError("%s: not executable" % existing[0], 126)
    if os.path.isdir(name) and "/" in name:
        raise StartError("%s: is a folder" % name, 126)
    raise StartError("%s: not found" % name, 127)


def command_argv(command: str | list[str]) -> list[str]:
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)


def spawn(command: str | list[str], env: dict[str, str], stdio: tuple[str | int, str | int, str | int]) -> int:
    """Start a program in a session of its own; each of stdin, stdout, stderr is a path or a descriptor."""
    argv = command_argv(command)
    if not argv or not argv[0]:
        raise StartError("the command is empty", 127)
    program = find_program(argv[0], env.get("PATH", os.defpath))
    actions: list[tuple[object, ...]] = []
    for number, target in enumerate(stdio):
        if isinstance(target, int):
            actions.append((os.POSIX_SPAWN_DUP2, target, number))
        else:
            # Output pipes are opened for both ways: should every reader be killed, what was written stays in the pipe
            # for whoever comes next, as long as the rank lives.
            actions.append((os.POSIX_SPAWN_OPEN, number, target, os.O_RDONLY if number == 0 else os.O_RDWR, 0))
    try:
        return _posix_spawn(program, argv, env, actions)
    except OSError as error:
        raise _start_error(program, error) from None


def _posix_spawn(program: str, argv: list[str], env: dict[str, str], actions: list[tuple[object, ...]]) -> int:
    try:
        return os.posix_spawn(
            program, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULTED
        )
    except NotImplementedError:  # macOS
        return os.posix_spawn(
            program, argv, env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_DEFAULTED
        )


def _start_error(program: str, error: OSError) -> StartError:
    if isinstance(error, FileNotFoundError):
        return StartError("%s: the interpreter its first line names was not found" % program, 127)
    if error.errno == 8:
        return StartError("%s: not a program; name its interpreter in front of it" % program, 126)
    return StartError("%s: %s" % (program, error.strerror), 126)


def keep_descriptors() -> list[int]:
    """Mark inherited descriptors (the engine's locks) close-on-exec, so that no rank keeps them. Returns them."""
    inherited = []
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            numbers = [int(name) for name in os.listdir(folder)]
        except (OSError, ValueError):
            continue
        for number in numbers:
            if number > 2:
                try:
                    if os.get_inheritable(number):
                        os.set_inheritable(number, False)
                        inherited.append(number)
                except OSError:  # the listing's own
                    pass
        break
    return inherited


def raise_open_files() -> None:
    """Raise the soft limit of open files to the hard one: 1,024 is too few for data loaders."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ImportError, OSError, ValueError):  # a system that allows less than it says
        pass


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process. False where the system does not support it."""
    try:
        call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return True
    except OSError:
        return False


def start_ticks(pid: int) -> int | None:
    """The start time in clock ticks since boot: with the pid it identifies a process. None without /proc."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command: state, parent, group, session, ... Empty: no such process."""
    try:
        return read_bytes("/proc/%d/stat" % pid).rpartition(b") ")[2].decode("ascii").split()
    except (OSError, ValueError):
        return []


def threads_holding(pid: int, number: int) -> set[str]:
    """Threads in which a signal is pending or blocked; the kernel blocks it while its handler runs."""
    bit = 1 << (number - 1)
    holding: set[str] = set()
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:  # gone, or no /proc here
        return holding
    for thread in threads:
        try:
            lines = read_bytes("/proc/%d/task/%s/status" % (pid, thread)).splitlines()
        except OSError:
            continue
        masks = [line.split()[1] for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:", b"SigBlk:"))]
        if any(int(mask, 16) & bit for mask in masks):
            holding.add(thread)
    return holding


def children(pid: int) -> list[int]:
    """Children of all threads of a process; empty when it is gone. Raises LookupError where the kernel does not list
    them.
    """
    pids: list[int] = []
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return pids
    for thread in threads:
        try:
            pids += map(int, read_bytes("/proc/%d/task/%s/children" % (pid, thread)).split())
        except OSError:
            if os.path.exists("/proc/%d/task/%s" % (pid, thread)):
                raise LookupError from None
    return pids


def tree(pid: int) -> list[int]:
    """A process and its descendants, parents before children."""
    if not HAS_PROC:
        return _tree_by_parents(pid, [line.split() for line in _ps("-axo", "pid=,ppid=")])
    pids, known = [pid], {pid}
    try:
        for each in pids:
            new = [child for child in children(each) if child not in known]
            pids += new
            known.update(new)
        return pids
    except LookupError:
        return _tree_by_parents(pid, [[name] + stat_fields(int(name))[1:2] for name in _all_pids()])


def _tree_by_parents(pid: int, pairs: list[list[str]]) -> list[int]:
    below: dict[int, list[int]] = {}
    for pair in pairs:
        if len(pair) == 2:
            below.setdefault(int(pair[1]), []).append(int(pair[0]))
    pids = [pid]
    for each in pids:
        pids += below.get(each, [])
    return pids


def _all_pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdecimal()] if HAS_PROC else []


def _ps(*arguments: str) -> list[str]:
    """The lines of `ps`, for systems without /proc."""
    import subprocess

    try:
        done = subprocess.run(["ps", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def carriers(marks: list[bytes]) -> list[int]:
    """Processes whose environment has all of these NAME=value."""
    pids = []
    for name in _all_pids():
        if int(name) != os.getpid():
            try:
                variables = read_bytes("/proc/%s/environ" % name).split(b"\0")
            except OSError:
                continue
            if all(mark in variables for mark in marks):
                pids.append(int(name))
    return pids


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
        return True
    except OSError:
        return False


def send_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
        return True
    except OSError:
        return False


def rss(pids: list[int]) -> int:
    """Resident bytes of these processes; shared pages count once per process."""
    total = 0
    for pid in pids:
        try:
            total += int(read_bytes("/proc/%d/statm" % pid).split()[1]) * _PAGE
        except (OSError, IndexError, ValueError):
            pass
    return total


def pss(pids: list[int]) -> int:
    """As `rss`, but shared pages count once. Slow: the kernel walks the page tables."""
    total = 0
    for pid in pids:
        try:
            for line in read_bytes("/proc/%d/smaps_rollup" % pid).splitlines():
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) * 1024
                    break
        except OSError:
            total += rss([pid])
    return total


def oom_kills() -> int:
    """How often the OOM killer has acted: in this cgroup, else on this machine."""
    group = cgroups.find()
    if group is not None:
        return cgroups.kills(group)
    try:
        for line in read_bytes("/proc/vmstat").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0


def is_python(pid: int) -> bool:
    try:
        names = [os.readlink("/proc/%d/exe" % pid)] if HAS_PROC else _ps("-p", str(pid), "-o", "comm=")
        return any("python" in os.path.basename(name.strip()).lower() for name in names)
    except OSError:
        return False


def identity(pid: int) -> dict[str, object]:
    """Pid, start time and boot id, which identify a process for an engine."""
    try:
        boot: str | None = read_bytes("/proc/sys/kernel/random/boot_id").decode("ascii").strip()
    except OSError:
        boot = None
    return {"pid": pid, "start_ticks": start_ticks(pid), "boot_id": boot, "started": time.time()}
