"""Server of a workbench run, as its only rank: `--workbench board|lab|hold`; `enter`, `save`, `ssh` are run beside.

The server listens on 127.0.0.1 alone, unless it is told to be `--open`. Port and token are in `session.json`, in a
folder of the node that only its owner can read: never in a command line, an object or a log. It ends by itself when
nobody has used it for `--idle` seconds, so that GPUs go to the next in the queue.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from ..location import entry_point
from ..node.jsonfiles import write_json
from .words import tell, told_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FOLDER = "workbench"
SESSION = "session.json"
LOOK_S = 1.0
"""How often the server is looked at: it ends, or falls idle, on a scale of minutes."""
START_S = 120.0
"""JupyterLab is up in 4 s on an idle machine; a loaded one with its packages on a network disk takes a minute."""
END_S = 10.0  # for a server to end after SIGTERM, below the 30 s that a stop gives the ranks
EXIT_MISSING = 127  # as a shell says it: no such program


class Foreign(Exception):
    """Another process has taken the port meanwhile and answers there: ours will end."""


class Missing(Exception):
    """The program is not installed here; the message says which package has it."""


class Stopped(Exception):
    """SIGTERM: the run is being stopped."""


class Bench:
    """What all kinds share: the private folder, and the session file that says that it is ready."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, FOLDER)
        os.makedirs(self.folder, 0o700, exist_ok=True)
        os.chmod(self.folder, 0o700)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def publish(self, kind: str, **facts: object) -> None:
        """Say that it is ready. The file is there at once and whole, and nobody else can read it."""
        before = os.umask(0o077)
        try:
            launcher = [sys.executable, "-I", "-S", entry_point()]
            about = {"kind": kind, "pid": os.getpid(), "launcher": launcher, "user": user_name()}
            write_json(self.path(SESSION), dict(facts, **about))
        finally:
            os.umask(before)

    @property
    def is_published(self) -> bool:
        return os.path.exists(self.path(SESSION))

    def withdraw(self) -> None:
        try:
            os.unlink(self.path(SESSION))
        except OSError:
            pass


def python_with(*modules: str) -> str | None:
    """The Python that the ranks have, if these packages are in it."""
    check = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
    for name in ("python", "python3"):
        python = shutil.which(name)
        if python and subprocess.call([python, "-c", check, *modules], stdin=subprocess.DEVNULL) == 0:
            return python
    return None


def user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a number without a name, as images have it
        return ""


def free_port(wanted: int, *, is_exact: bool = False) -> int:
    """The wanted port of 127.0.0.1 if nobody has it, else one that is free; with `is_exact` that one or OSError."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
            except OSError:
                if is_exact or not port:
                    raise
    raise AssertionError("port 0 is free, or an error")


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
        return True
    except OSError:
        return False


def _is_up(port: int, ready: Callable[[], None]) -> bool:
    if not is_listening(port):
        return False
    try:
        ready()
    except Foreign:
        return False
    return True


def run_server(
    command: list[str], env: dict[str, str], port: int, ready: Callable[[], None], turn: Callable[[], bool]
) -> int:
    """Start it, call `ready` once it listens, then `turn` until that says that it is over. The exit code."""
    server = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not _is_up(port, ready):
            if server.poll() is not None:
                tell("%s ended before it answered (exit code %s)" % (command[0], server.returncode))
                return server.returncode or 1
            if time.monotonic() > deadline:
                tell("%s does not answer after %d s" % (command[0], START_S))
                return 1
            time.sleep(0.05)
        while server.poll() is None:
            if turn():
                return 0
            time.sleep(LOOK_S)
        return server.returncode
    except Stopped:
        return 128 + signal.SIGTERM
    finally:
        end(server)


def end(server: subprocess.Popen[Any]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class IdleClock:
    """When it was used last. Not the time of day: a machine that slept was not idle all the while."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._used = time.monotonic()

    def note_use(self) -> None:
        self._used = time.monotonic()

    def is_over(self) -> bool:
        if not self._idle_s or time.monotonic() - self._used < self._idle_s:
            return False
        tell("ends: nobody used it for %s" % told_duration(self._idle_s))
        return True


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="longboat launcher --workbench", allow_abbrev=False)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name in ("board", "lab", "hold"):
        kind = kinds.add_parser(name, allow_abbrev=False)
        kind.add_argument("--idle", type=float, default=3600.0)
        kind.add_argument("--port", type=int, default=0)
        kind.add_argument("--exact", action="store_true")
        kind.add_argument("--edits", action="store_true")
        kind.add_argument("--open", action="store_const", const="0.0.0.0", default="127.0.0.1")
        if name == "board":
            kind.add_argument("--runs", default="")
            kind.add_argument("--program", default="tensorboard")
            kind.add_argument("--run", action="append", default=[])
            kind.add_argument("--label", action="append", default=[])
            kind.add_argument("--store", action="append", default=[])
    for name in ("enter", "ssh", "save"):
        kind = kinds.add_parser(name, allow_abbrev=False)
        kind.add_argument("folder")
        kind.add_argument("rest", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def main(argv: list[str]) -> int:
    options = parse(argv[1:])
    if options.kind == "enter":
        from .inside import enter

        return enter(options.folder, options.rest)
    if options.kind == "save":
        from .edits import ask_save

        return ask_save(os.path.join(options.folder, FOLDER))
    if options.kind == "ssh":
        from .ssh import serve_ssh

        return serve_ssh(options.folder, options.rest)
    signal.signal(signal.SIGTERM, _stop)
    bench = Bench(os.environ["LONGBOAT_NODE_DIR"])
    try:
        return _serve(bench, options)
    except Stopped:
        return 128 + signal.SIGTERM
    except Missing as error:
        tell(str(error))
        return EXIT_MISSING
    except OSError as error:
        tell("cannot serve: %s" % error)
        return 1
    finally:
        bench.withdraw()


def _serve(bench: Bench, options: argparse.Namespace) -> int:
    if options.kind == "board":
        from .board import serve_board

        return serve_board(bench, options)
    if options.kind == "lab":
        from .lab import serve_lab

        return serve_lab(bench, options)
    from .inside import hold

    return hold(bench, options)


def _stop(_number: int, _frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough: what follows must not be interrupted
    raise Stopped
