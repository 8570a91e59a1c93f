"""Remote starts for mpirun: a launcher runs commands for the node that runs mpirun, over one TCP connection each.

The caller proves the run's token first (`handshake`). A connection that is lost ends its command. `mpi_agent` is the
other side; both speak the frames of `handshake`.
"""

from __future__ import annotations

import os
import socket

from ..gang.handshake import MPI, Acceptor, frame, listen, proof, take_frame
from ..node import processes
from ..node.jsonfiles import dumps, loads
from ..node.loop import POLLIN, POLLOUT, ChildEnd
from ..ranks.state import LauncherState

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

REQUEST, STARTED, STDIN, STDOUT, STDERR, END = b"R", b"S", b"I", b"O", b"E", b"X"
EXIT_NOT_STARTED = 126  # as a shell says it
_BUFFER_MAX = 1 << 20
"""Bytes that mpirun does not take: then the command waits. That the command does not read: then it is given up."""


class MpiServer:
    """Serves mpirun's agents; every authenticated connection is one command."""

    def __init__(self, state: LauncherState, port: int, token: bytes) -> None:
        self._state = state
        expected = proof(token, MPI)
        self._acceptor = Acceptor(state.loop, listen(state.plan.address, port), expected, self._admit)
        self._acceptor.on_refused = state.refused

    def _admit(self, connection: socket.socket, kind: bytes, data: bytes, rest: bytes) -> None:
        """Start the requested command; raises for an invalid request, and the acceptor closes the connection."""
        if kind != REQUEST:
            raise ValueError("not a request")
        command = loads(data.decode("utf-8"))["command"]
        if not isinstance(command, str) or not command or "\0" in command:
            raise ValueError("no command")
        _Call(self._state, connection, rest).start(command)


class _Call:
    """One command: its streams over the connection, then its exit code."""

    def __init__(self, state: LauncherState, connection: socket.socket, rest: bytes) -> None:
        self._state = state
        self._loop = state.loop
        self._socket = connection
        self._fd = connection.fileno()
        self._in = bytearray(rest)
        self._out = bytearray()
        self._pid = 0
        self._sources: dict[int, bytes] = {}  # the command's stdout and stderr: descriptor -> kind
        self._stdin = -1
        self._typed = bytearray()
        self._finished = False

    def start(self, command: str) -> None:
        """Start the command. A failure to start is sent to the caller as its exit."""
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            stdio = (pipes[0], pipes[3], pipes[5])
            self._pid = self._state.start(command, self._state.env, stdio, self._ended)
        except (processes.StartError, OSError, ValueError) as error:
            for descriptor in pipes:
                os.close(descriptor)
            self._send(STDERR, ("%s\n" % error).encode("utf-8", "replace"))
            self._send(END, dumps({"exit_code": getattr(error, "exit_code", EXIT_NOT_STARTED)}).encode("ascii"))
            self._finished = True
            self._flush()
            return
        for rank in self._state.ranks:
            if not rank.alive:
                rank.begin(self._pid)
        for descriptor in stdio:
            os.close(descriptor)
        self._send(STARTED, b"")
        self._stdin = pipes[1]
        os.set_blocking(self._stdin, False)
        for descriptor, kind in ((pipes[2], STDOUT), (pipes[4], STDERR)):
            os.set_blocking(descriptor, False)
            self._sources[descriptor] = kind
            self._watch_source(descriptor)
        self._handle_all()

    def _ready(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data == b"":
            self._close()
            return
        self._in += data or b""
        self._handle_all()

    def _handle_all(self) -> None:
        """Handle received frames; an invalid one closes this connection only."""
        try:
            while self._fd >= 0:
                got = take_frame(self._in)
                if got is None:
                    break
                self._handle(*got)
        except Exception:
            self._close()
            return
        self._flush()

    def _handle(self, kind: bytes, data: bytes) -> None:
        if kind != STDIN:
            raise ValueError("unexpected frame")
        self._typed += data
        self._feed(is_end=not data)

    def _feed(self, is_end: bool) -> None:
        """Write stdin to the command; unread input is buffered up to a bound."""
        if self._stdin < 0:
            self._typed.clear()
            return
        try:
            while self._typed:
                del self._typed[: os.write(self._stdin, self._typed)]
        except BlockingIOError:
            if len(self._typed) > _BUFFER_MAX:
                raise ValueError("the command does not read its input") from None
            self._loop.after((self, "stdin"), 0.05, lambda: self._feed(is_end))
            return
        except OSError:
            is_end = True
        if is_end:
            os.close(self._stdin)
            self._stdin = -1

    def _watch_source(self, descriptor: int) -> None:
        self._loop.watch(descriptor, lambda: self._read(descriptor))

    def _read(self, descriptor: int) -> bool:
        """Send output of the command. False: none available, or its end."""
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._send(self._sources[descriptor], data)
            self._flush()
            return True
        self._loop.unwatch(descriptor)
        del self._sources[descriptor]
        os.close(descriptor)
        return False

    def _ended(self, end: ChildEnd) -> None:
        for descriptor in list(self._sources):
            for _ in range(64):
                if not self._read(descriptor):
                    break
        self._pid = -1
        self._finished = True
        self._state.on_remote_end(end)
        self._send(END, dumps({"exit_code": end.code}).encode("ascii"))
        self._flush()

    def _send(self, kind: bytes, data: bytes) -> None:
        if self._fd >= 0:
            self._out += frame(kind, data)

    def _flush(self) -> None:
        """Send buffered data; the command's output is not read while too much is buffered."""
        if self._fd < 0:
            return
        try:
            while self._out:
                del self._out[: self._socket.send(self._out[:65536])]
        except BlockingIOError:
            pass
        except OSError:
            self._close()
            return
        if self._finished and not self._out:
            self._close()
            return
        self._loop.watch(self._fd, self._ready, POLLIN | POLLOUT if self._out else POLLIN)
        for descriptor in self._sources:
            if len(self._out) > _BUFFER_MAX:
                self._loop.unwatch(descriptor)
            else:
                self._watch_source(descriptor)

    def _close(self) -> None:
        """Close the connection and end its command."""
        if self._fd < 0:
            return
        self._loop.cancel(self)
        self._loop.unwatch(self._fd)
        self._fd = -1
        self._socket.close()
        for descriptor in self._sources:
            self._loop.unwatch(descriptor)
            os.close(descriptor)
        self._sources.clear()
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        if self._pid > 0 and self._pid in self._state.running:
            pid = self._pid
            processes.send_group(pid, signal.SIGTERM)
            self._loop.after(("remote", pid), self._state.plan.grace_s, lambda: self._kill(pid))

    def _kill(self, pid: int) -> None:
        if pid in self._state.running:
            processes.send_group(pid, signal.SIGKILL)
