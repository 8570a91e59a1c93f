"""A host over SSH: scripts run in channels of one connection, which is made again when it was lost between scripts."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

import asyncssh

from longboat.clusters.hosts import scripts
from longboat.clusters.hosts.connection import HostUnreachable
from longboat.clusters.hosts.logins import LOGIN_S, RETRY_S, Logins
from longboat.clusters.hosts.loop_thread import LoopThread
from longboat.clusters.hosts.output import ScriptOutput
from longboat.clusters.hosts.shell import ShellConnection
from longboat.clusters.spec import HostSpec

T = TypeVar("T")
SESSIONS = 8
"""sshd allows 10 on one connection (MaxSessions); two are left for ending scripts."""
DRAIN_S = 2.0
"""A daemon that the script started may keep its output open for ever."""
OPEN_S = 30.0  # a login and a channel; sshd itself gives up on a login after 120 s
KILL_S = 10.0  # a short script that sends a signal, on a connection that is there
# A second line of defence: each step inside the event loop has a limit of its own.
SLACK_S = OPEN_S + KILL_S + 15.0
LOGIN_LIMIT_S = RETRY_S + 6 * LOGIN_S  # also for a bastion, and for a slot
MOST_LINES, LONGEST_SHOWN = 10_000, 4096
"""Waiting for a slow reader; past that lines are left out of the live view, or cut, never of the result."""


class _Session(asyncssh.SSHClientSession[bytes]):
    def __init__(self, streams: tuple[ScriptOutput, ScriptOutput]) -> None:
        self.streams = streams
        self.code: int | None = None
        self.lost: Exception | None = None
        self.ended, self.closed, self.writable = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.writable.set()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.streams[1 if datatype else 0].feed(data)

    def exit_status_received(self, status: int) -> None:
        self.code = status
        self.ended.set()

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.code = 128 + {"KILL": 9, "TERM": 15, "HUP": 1, "INT": 2}.get(signal, 1)
        self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        for event in (self.ended, self.closed, self.writable):
            event.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


class SshConnection(ShellConnection):
    def __init__(self, host: HostSpec, loop: LoopThread, logins: Logins) -> None:
        super().__init__(host.name)
        self._host, self._loop, self._logins = host, loop, logins
        self._connection: asyncssh.SSHClientConnection | None = None
        self._sessions = threading.BoundedSemaphore(SESSIONS)
        self._connecting = threading.Lock()

    def connect(self) -> asyncssh.SSHClientConnection:
        """Return the connection; logs in if there is none."""
        with self._connecting:
            if self._connection is None or self._connection.is_closed():
                self._connection = self._wait(self._submit(self._logins.log_in(self._host)), LOGIN_LIMIT_S)
            return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(CancelledError, FutureTimeout):  # the loop may be closed already
                self._loop.submit(_say_goodbye(connection)).result(KILL_S)

    def _execute(
        self, command: str, stdin: Iterator[bytes], streams: tuple[ScriptOutput, ScriptOutput], timeout_s: float
    ) -> int | None:
        with self._sessions:
            connection = self.connect()
            # Lines are given to `on_line` by the thread that asked: the event loop waits for nobody's terminal.
            lines: queue.Queue[str | None] = queue.Queue()
            on_line = streams[0].on_line
            for stream in streams if on_line else ():
                stream.on_line = lambda line: lines.put(line[:LONGEST_SHOWN]) if lines.qsize() < MOST_LINES else None
            work = self._submit(self._in_channel(connection, command, stdin, streams, timeout_s))
            work.add_done_callback(lambda _: lines.put(None))
            try:
                while (line := lines.get(timeout=timeout_s + SLACK_S)) is not None:
                    if on_line:
                        on_line(line)
                return self._wait(work, SLACK_S)
            except queue.Empty:
                raise HostUnreachable(self.name, f"no answer within {timeout_s:g} s") from None
            finally:
                work.cancel()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            return self._loop.submit(work)
        except CancelledError:
            raise HostUnreachable(self.name, "the connection was closed here") from None

    def _wait(self, work: Future[T], limit_s: float) -> T:
        try:
            return work.result(limit_s)
        except FutureTimeout:
            raise HostUnreachable(self.name, f"no answer within {limit_s:g} s") from None
        except CancelledError:
            raise HostUnreachable(self.name, "the connection was closed here") from None
        finally:
            work.cancel()

    async def _in_channel(
        self,
        connection: asyncssh.SSHClientConnection,
        command: str,
        stdin: Iterator[bytes],
        streams: tuple[ScriptOutput, ScriptOutput],
        timeout_s: float,
    ) -> int | None:
        session = _Session(streams)
        try:
            channel, _ = await asyncio.wait_for(
                connection.create_session(lambda: session, command, encoding=None), OPEN_S
            )
        except (OSError, asyncssh.Error, asyncio.TimeoutError) as error:
            raise HostUnreachable(self.name, f"the connection broke: {error or 'no answer'}") from error
        feeding = asyncio.ensure_future(_feed(channel, session, stdin))
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(session.ended.wait(), timeout_s)
                await asyncio.wait_for(session.closed.wait(), DRAIN_S)
        finally:
            if not session.ended.is_set():
                await _to_its_end(self._kill(connection, streams[0].after_mark))
            feeding.cancel()
            unread = (await asyncio.gather(feeding, return_exceptions=True))[0]
            channel.abort()
            for stream in streams:
                stream.close()
        if session.ended.is_set() and session.code is None:
            raise HostUnreachable(self.name, f"the connection broke: {session.lost or 'the host closed it'}")
        if isinstance(unread, OSError):
            raise unread
        return session.code

    async def _kill(self, connection: asyncssh.SSHClientConnection, group: str | None) -> None:
        """Kill the script's process group, as the user it runs as."""
        if connection.is_closed() or not group or not group.isdecimal():
            return
        with contextlib.suppress(OSError, asyncssh.Error, asyncio.TimeoutError):
            sudo = scripts.SUDO.get(self._sudo, "")
            password = f"{self._password}\n".encode() if self._sudo == "password" else b""
            kill = f"{sudo}sh -c 'kill -TERM -{group}; sleep 1; kill -KILL -{group}'"
            await asyncio.wait_for(connection.run(kill, input=password, encoding=None), KILL_S)


async def _feed(channel: asyncssh.SSHClientChannel[bytes], session: _Session, stdin: Iterator[bytes]) -> None:
    """Write stdin at the host's pace; the script may end without reading all of it."""
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.run_in_executor(None, next, stdin, b""):
            await session.writable.wait()
            if channel.is_closing():
                return
            channel.write(data)
        channel.write_eof()
    except (BrokenPipeError, asyncssh.Error):
        return


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the clean-up although it is cancelled repeatedly: by the interrupt, then by the end of the loop."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)


async def _say_goodbye(connection: asyncssh.SSHClientConnection) -> None:
    connection.close()
    with contextlib.suppress(asyncio.TimeoutError, OSError, asyncssh.Error):
        await asyncio.wait_for(connection.wait_closed(), DRAIN_S)
    connection.abort()
