"""This machine as a host: the same scripts, started as processes here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import IO

from longboat.clusters.hosts import scripts
from longboat.clusters.hosts.connection import HostUnreachable
from longboat.clusters.hosts.output import ScriptOutput
from longboat.clusters.hosts.shell import ShellConnection

READ = 64 << 10
DRAIN_S = 2.0
"""A daemon that the script started may keep its output open for ever; what was printed by then is there."""
KILL_S = 10.0
"""sudo may look up users over a network before it ends what root runs."""


class LocalConnection(ShellConnection):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._starting = threading.Lock()
        self._is_closed = False
        self._running: dict[subprocess.Popen[bytes], ScriptOutput] = {}

    def close(self) -> None:
        """Kill running scripts and start no more, as a cut connection does."""
        with self._starting:
            self._is_closed = True
            running = list(self._running.items())
        for process, output in running:
            self._end(process, output.after_mark)

    def _execute(
        self, command: str, stdin: Iterator[bytes], streams: tuple[ScriptOutput, ScriptOutput], timeout_s: float
    ) -> int | None:
        process = self._start(command, streams[0])
        assert process.stdin and process.stdout and process.stderr
        lock = threading.Lock()  # lines of both streams go to one callback
        threads = [
            threading.Thread(target=_drain, args=(pipe, output, lock), daemon=True)
            for pipe, output in zip((process.stdout, process.stderr), streams)
        ]
        unread: list[OSError] = []
        threads.append(threading.Thread(target=_feed, args=(process.stdin, stdin, unread), daemon=True))
        for thread in threads:
            thread.start()
        code = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout_s)
        finally:
            self._end(process, streams[0].after_mark)
            with self._starting:
                del self._running[process]
            deadline = time.monotonic() + DRAIN_S
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        if unread:
            raise unread[0]
        if self._is_closed and code != 0:
            raise HostUnreachable(self.name, "the connection was closed here")
        return code

    def _start(self, command: str, output: ScriptOutput) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._is_closed:
                raise HostUnreachable(self.name, "the connection was closed here")
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", command], start_new_session=True, cwd="/",
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip
            except OSError as error:
                raise HostUnreachable(self.name, f"no shell can be started: {error.strerror}") from error
            self._running[process] = output
            return process

    def _end(self, process: subprocess.Popen[bytes], group: str | None) -> None:
        """Kill the script's process groups after an interrupt or a timeout."""
        if process.poll() is not None:
            return
        groups = [process.pid, *([int(group)] if group and group.isdecimal() else [])]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for leader in groups:
                try:
                    os.killpg(leader, number)
                except PermissionError:  # root's, by sudo
                    self._kill_as_root(leader, number)
                except OSError:
                    continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(scripts.KILL_AFTER_S)
                return

    def _kill_as_root(self, group: int, number: int) -> None:
        password = f"{self._password}\n".encode() if self._sudo == "password" else b""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["/bin/sh", "-c", f"{scripts.SUDO.get(self._sudo, '')}kill -{number} -- -{group}"],
                input=password, capture_output=True, timeout=KILL_S, check=False,
            )  # fmt: skip


def _drain(pipe: IO[bytes], output: ScriptOutput, lock: threading.Lock) -> None:
    with pipe:
        while data := os.read(pipe.fileno(), READ):
            with lock:
                output.feed(data)
    with lock:
        output.close()


def _feed(pipe: IO[bytes], stdin: Iterator[bytes], unread: list[OSError]) -> None:
    # A script need not read what it is given.
    with contextlib.suppress(BrokenPipeError), pipe:
        while True:
            try:
                data = next(stdin, b"")
            except OSError as error:
                unread.append(error)
                return
            if not data:
                return
            pipe.write(data)
            pipe.flush()
