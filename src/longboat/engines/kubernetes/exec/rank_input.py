"""stdin for the only rank of an attached run: passed on by exec to the launcher once the pod runs (`launcher --stdin`).

Nothing is taken before the rank has read the first byte, so `while read line; do longboat run ...; done` keeps its
lines where the command reads none. Not here: whose input it is, and what is typed at a terminal (`cli.input`).
"""

from __future__ import annotations

import io
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, cast

from longboat.engines.kubernetes.exec.pod_exec import FramedOutput
from longboat.engines.kubernetes.manifests.pod_template import CONTAINER, LAUNCHER
from longboat.engines.kubernetes.manifests.volumes import NODE
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, ObjectNotFound
from longboat.kubeapi.refusals import Refusals
from longboat.kubeapi.streams.exec import ContainerProcess, Session, relay_streams

EXIT_LATE = 202  # of the launcher: nobody waits for input any more
AGAIN_S, TRIES = 1.0, 20
"""A connection that cannot be made is tried again: the launcher waits for a minute."""


def has_input(descriptor: int) -> bool:
    """Whether there may be something to pass on: not for /dev/null, nor at the end of a file."""
    status = os.fstat(descriptor)
    if stat.S_ISCHR(status.st_mode):
        return status.st_rdev != os.stat(os.devnull).st_rdev
    return not stat.S_ISREG(status.st_mode) or peek(descriptor, 1) != b""


def peek(descriptor: int, count: int) -> bytes | None:
    """The next bytes, which stay where they are; none at the end. None: this kind of file cannot be looked into."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.pread(descriptor, count, os.lseek(descriptor, 0, os.SEEK_CUR))
    if not stat.S_ISFIFO(mode):
        return None
    import ctypes

    copy = getattr(ctypes.CDLL(None), "tee", None)
    if copy is None:
        return None
    await_input(descriptor)
    reader, writer = os.pipe()
    try:
        copied = copy(descriptor, writer, count, 0)
        return os.read(reader, copied) if copied > 0 else b"" if copied == 0 else None
    finally:
        os.close(reader)
        os.close(writer)


def await_input(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()


class InputOnDemand(io.RawIOBase):
    """What a descriptor has: the first byte is shown, and only taken, with all others, once `is_wanted` is set."""

    def __init__(self, descriptor: int) -> None:
        self.is_wanted = threading.Event()
        self._descriptor = descriptor
        self._shown = 0

    def read(self, size: int = -1) -> bytes:
        if not self._shown and not self.is_wanted.is_set():
            first = peek(self._descriptor, 1)
            if first is not None:
                self._shown = len(first)
                return first
        elif self._shown:
            self.is_wanted.wait()
            os.read(self._descriptor, self._shown)
            self._shown = 0
        await_input(self._descriptor)
        return os.read(self._descriptor, size)


class _Sign(io.RawIOBase):
    """Sets the event when anything is written."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def write(self, content: object, /) -> int:
        self._event.set()
        return len(cast(bytes, content))


class RankInput:
    """The caller's stdin for one run. `attach` is told of every pod that has started."""

    def __init__(self, client: Client, namespace: str, descriptor: int, notice: Callable[[str], None]) -> None:
        self._client = client
        self._namespace = namespace
        self._notice = notice
        self._source = InputOnDemand(os.dup(descriptor))  # the caller closes its own once the run is submitted
        self._thread: threading.Thread | None = None
        self._is_told = False

    def attach(self, pod: PodView) -> None:
        """Only the first attempt reads it: what was read cannot be read again."""
        if pod.attempt == 0 and self._thread is None:
            self._thread = threading.Thread(target=self._pass_on, args=(pod.name,), name="stdin", daemon=True)
            self._thread.start()
        elif pod.attempt > 0 and self._source.is_wanted.is_set() and not self._is_told:
            self._is_told = True
            self._notice("what came on stdin was read by the first attempt: this one has an empty stdin")

    def _pass_on(self, pod: str) -> None:
        command = ("python3", "-I", "-S", LAUNCHER, "--stdin", NODE)
        place = ContainerProcess(pod, self._namespace, CONTAINER, command)
        refusals = Refusals(was_allowed=True)  # to submit; whether also to exec is known after a while only
        for left in reversed(range(TRIES)):
            try:
                session = Session(self._client, place, stdin=True, tty=False, needs_end=False)
                break
            except ObjectNotFound:
                return  # it has ended
            except ApiError as error:
                if not left or (isinstance(error, Forbidden) and not refusals.may_pass()):
                    self._tell_lost(error.message)
                    return
                time.sleep(AGAIN_S)
        frames = cast(BinaryIO, FramedOutput(cast(BinaryIO, self._source)))
        try:
            code = relay_streams(session, frames, cast(BinaryIO, _Sign(self._source.is_wanted)), None)
            if code == EXIT_LATE:
                self._tell_lost("the pod has not waited for it")
        except ApiError:
            pass  # the run has ended, or cannot be reached: whoever follows it says so

    def _tell_lost(self, reason: str) -> None:
        """Once there is something to lose: most commands read nothing, and nothing is typed for them."""
        if self._source.read(1):
            self._notice(f"stdin is not passed on to the rank, which finds it empty: {reason}")
