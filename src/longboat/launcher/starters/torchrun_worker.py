"""The stand-in that torchrun starts as `$PYTHON_EXEC` for each worker: it runs the real interpreter, gives the worker
its own log pipes, passes signals on, and tells the launcher the worker's true end. Runs in a process of its own.
"""

from __future__ import annotations

import os
import sys
import time

from ..node.jsonfiles import dumps, read_bytes, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

RANKS = "LONGBOAT_STANDIN_RANKS"  # the node's ranks in the order of their local ranks
USERS_PYTHON = "LONGBOAT_STANDIN_PYTHON"  # the user's own PYTHON_EXEC, if any
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main(argv: list[str]) -> int:
    python = real_python()
    command = [python] + argv[1:]
    ranks = os.environ.get(RANKS, "").split(",")
    local_rank = os.environ.get("LOCAL_RANK", "")
    env = worker_environment(dict(os.environ))
    if not local_rank.isdecimal() or int(local_rank) >= len(ranks):
        os.execve(python, command, env)  # not a worker of torchrun
    rank = int(ranks[int(local_rank)])
    env["LONGBOAT_RANK"] = str(rank)
    return _Worker(os.environ["LONGBOAT_NODE_DIR"], rank, int(ranks[0])).run(command, env)


def worker_environment(env: dict[str, str]) -> dict[str, str]:
    """The worker's environment without the stand-in's variables."""
    env.pop(RANKS, None)
    env.pop("PYTHON_EXEC", None)
    own = env.pop(USERS_PYTHON, "")
    if own:
        env["PYTHON_EXEC"] = own
    return env


def real_python() -> str:
    """The interpreter that torchrun would use: the user's PYTHON_EXEC, else torchrun's own."""
    path = os.environ.get("PATH", os.defpath)
    own = os.environ.get(USERS_PYTHON)
    if own:
        return _which(own, path) or own
    parent = os.getppid()
    try:
        name = os.fsdecode(read_bytes("/proc/%d/cmdline" % parent).split(b"\0")[0])
        running = os.readlink("/proc/%d/exe" % parent)
        folder = os.readlink("/proc/%d/cwd" % parent)
        # The name, not the resolved file: a virtual environment is known by its name only.
        python = os.path.join(folder, name) if "/" in name else _which(name, path)
        if "python" in os.path.basename(running) or "pypy" in os.path.basename(running):
            return python if python and os.path.realpath(python) == running else running
    except (OSError, IndexError):
        pass
    torchrun = _which("torchrun", path)
    beside = [os.path.join(os.path.dirname(torchrun), "python")] if torchrun else []
    for candidate in beside + [_which("python3", path), _which("python", path)]:
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    return sys.executable


def _which(name: str, path: str) -> str:
    for folder in [""] if "/" in name else path.split(":"):
        file = os.path.join(folder, name)
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return ""


class _Worker:
    def __init__(self, directory: str, rank: int, first: int) -> None:
        self._directory = directory
        self._rank = rank
        self._first = first
        self._pid = 0

    def run(self, command: list[str], env: dict[str, str]) -> int:
        # Blocked around the fork: what arrives then reaches the worker once, and never a handler of its copy of us.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        self._pid = self._fork(command, env)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        self._tell("started", {"pid": self._pid, "started": time.time(), "started_ns": time.monotonic_ns()})
        pid, status, usage = os.wait4(self._pid, 0)
        self._pid = 0
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = 128 + killed_by if killed_by is not None else os.WEXITSTATUS(status)
        end: dict[str, object] = {
            "pid": pid,
            "status": status,
            "exit_code": code,
            "signal": killed_by,
            "ended": time.time(),
            "ended_ns": time.monotonic_ns(),
            "rss_peak": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
            "is_final": _count("TORCHELASTIC_RESTART_COUNT") >= _count("TORCHELASTIC_MAX_RESTARTS"),
        }
        self._tell("ended", end)
        if killed_by is not None:
            _die_of(killed_by)
        return code

    def _fork(self, command: list[str], env: dict[str, str]) -> int:
        """Start the worker in its own process group, so that signals to torchrun's group reach it once: through us."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            try:
                os.setpgid(pid, pid)
            except OSError:
                pass  # the worker was faster
            return pid
        try:
            os.setpgid(0, 0)
            _die_with_parent(parent)
            self._take_pipes()
            for number in _PASSED_ON + (signal.SIGPIPE,):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            os.execve(command[0], command, env)
        except OSError as error:
            os.write(2, ("longboat: %s: %s\n" % (command[0], error.strerror)).encode())
        finally:
            os._exit(127)

    def _take_pipes(self) -> None:
        """Redirect output to the rank's own pipes, unless torchrun redirects it elsewhere."""
        for number, stream in ((1, "out"), (2, "err")):
            shared = os.path.join(self._directory, "pipes", "%d.%s" % (self._first, stream))
            own = os.path.join(self._directory, "pipes", "%d.%s" % (self._rank, stream))
            try:
                if os.path.samestat(os.fstat(number), os.stat(shared)):
                    os.dup2(os.open(own, os.O_RDWR | os.O_NONBLOCK), number)
                    os.set_blocking(number, True)
            except OSError:
                pass

    def _pass_on(self, number: int, frame: object) -> None:
        try:
            if self._pid:
                os.killpg(self._pid, number)
        except OSError:
            pass

    def _tell(self, event: str, facts: dict[str, object]) -> None:
        """Report an event through the launcher's pipe and, for later readers, in a file."""
        facts = {"event": event, "rank": self._rank, **facts}
        text = dumps(facts).encode("ascii")
        try:
            write_whole(os.path.join(self._directory, "workers", "%d.json" % self._rank), text)
        except OSError:
            pass  # a full disk
        try:
            pipe = os.open(os.path.join(self._directory, "pipes", "workers"), os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, text + b"\n")
            os.close(pipe)
        except OSError:
            pass


def _count(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _die_with_parent(parent: int) -> None:
    """Kill the worker when the stand-in dies, as torchrun may kill it."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(137)
    except (ImportError, OSError, AttributeError):
        pass


def _die_of(number: int) -> None:
    """Die of the same signal, without a core file."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        signal.signal(number, signal.SIG_DFL)
    except (ImportError, OSError, ValueError):
        pass
    os.kill(os.getpid(), number)
