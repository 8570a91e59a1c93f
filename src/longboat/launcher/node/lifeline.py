"""The lifeline of a launcher: a pipe that closes when its engine dies; and a launcher that waits for the next attempt.

Restart in place: a launcher whose ranks have failed stays. Told by the engine, it becomes the launcher of the next
attempt, by `exec`: the process, its descriptors and its mounts are kept, and nothing else of the one before.
"""

from __future__ import annotations

import os
import sys
import time

from ..location import entry_point
from .environment import LIFELINE
from .jsonfiles import read_json, write_json
from .loop import EventLoop
from .plan import NodePlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable
else:
    import _signal as signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
"""What a launcher is told by; blocked from its start until it listens."""
STAYS, NEXT = "stays.json", "next.json"
"""Files of the node: its launcher stays after a failure; the plan with which it is to go on."""


def hold(loop: EventLoop, on_end: Callable[[], object]) -> int | None:
    """Watch the pipe that the engine holds, named in the environment; None where there is none."""
    try:
        descriptor = int(os.environ.pop(LIFELINE, ""))
        os.set_inheritable(descriptor, False)
        os.set_blocking(descriptor, False)
    except (ValueError, OSError):
        return None
    watch(loop, descriptor, on_end)
    return descriptor


def watch(loop: EventLoop, descriptor: int, on_end: Callable[[], object]) -> None:
    def look() -> None:
        try:
            if os.read(descriptor, 4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        loop.unwatch(descriptor)
        on_end()

    loop.watch(descriptor, look)


def stay(loop: EventLoop, plan: NodePlan, lifeline: int, kept: list[int]) -> None:
    """Stay until the engine says what comes next. Returns when that is the end, or the engine is gone.

    `kept`: descriptors that the launcher was started with, the engine's locks among them.
    """
    signals: list[int] = []
    loop.on_signal = signals.append
    watch(loop, lifeline, lambda: signals.append(signal.SIGTERM))
    try:
        write_json(os.path.join(plan.directory, STAYS), {"time": time.time()})
        _wake(str(plan.stays))
        while signal.SIGTERM not in signals and signal.SIGINT not in signals:
            loop.turn()
            if signal.SIGUSR2 in signals:  # without a plan: a gang that is ended is told so on every node
                _go_on(plan, lifeline, kept)
    except OSError:  # a full disk: the engine starts another launcher
        pass


def _wake(fifo: str) -> None:
    """Have the engine look at the node's files now."""
    descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(descriptor, b"!")
    finally:
        os.close(descriptor)


def _go_on(plan: NodePlan, lifeline: int, kept: list[int]) -> None:
    """Become the launcher of the next attempt, if there is a plan for it."""
    try:
        order = read_json(os.path.join(plan.directory, NEXT))
    except (FileNotFoundError, ValueError):
        return
    path = str(order["plan"])
    log = os.open(os.path.join(os.path.dirname(path), "launcher.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in (1, 2):
        os.dup2(log, number)
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    env = {**os.environ, LIFELINE: str(lifeline), "LONGBOAT_ATTEMPT": str(int(order["attempt"]))}
    os.execve(sys.executable, [sys.executable, "-I", "-S", entry_point(), path], env)
