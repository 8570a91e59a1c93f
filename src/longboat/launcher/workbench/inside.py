"""Holding a node for a person (`hold`), and being inside of it (`enter`): a shell counts as long as it lives."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time

from .edits import EditKeeper
from .serve import FOLDER, LOOK_S, Bench, IdleClock, Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

LOCK = "inside.lock"


def hold(bench: Bench, options: argparse.Namespace) -> int:
    """Keep the node, its GPUs and its files until nobody was inside for a while."""
    clock = IdleClock(options.idle)
    keeper = None
    if options.edits:
        keeper = EditKeeper(os.getcwd(), os.environ["LONGBOAT_ARTIFACTS_DIR"], bench.folder)
    lock = os.open(bench.path(LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    bench.publish("hold")
    try:
        while True:
            if is_inside(lock):
                clock.note_use()
            if clock.is_over():
                return 0
            if keeper is not None:
                keeper.turn()
            time.sleep(LOOK_S)
    except Stopped:
        return 128 + signal.SIGTERM
    finally:
        if keeper is not None:
            keeper.save()


def is_inside(lock: int) -> bool:
    """Whether somebody holds the lock. The kernel gives it back when he dies, however that happens."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def come_in(folder: str) -> None:
    """Count as inside from now on: this process, what it becomes and what that starts."""
    lock = os.open(os.path.join(folder, FOLDER, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    os.set_inheritable(lock, True)


def enter(folder: str, words: list[str]) -> int:
    """Become the command, or a shell."""
    come_in(folder)
    command = words[1:] if words[:1] == ["--"] else words
    command = command or [shutil.which("bash") or "/bin/sh"]
    for name in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what it ignores its successor would too
        signal.signal(name, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write("longboat: %s: %s\n" % (command[0], error.strerror))
        return 127 if isinstance(error, FileNotFoundError) else 126
