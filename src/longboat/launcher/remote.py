"""Remote starts for mpirun: a launcher runs commands for the node that runs mpirun, over one TCP connection each.

The caller shows the run's token first. A connection that is lost ends its command. `agent` is the other side; both
speak frames of one kind byte, a length (u32, big-endian) and that many bytes.
"""

from __future__ import annotations

import os
import socket
import struct

from . import processes
from .jsonfiles import dumps, loads, read_bytes
from .loop import POLLIN, POLLOUT, ChildEnd
from .state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

FRAME = struct.Struct(">cI")
REQUEST, STDIN, STDOUT, STDERR, END = b"R", b"I", b"O", b"E", b"X"
FRAME_MAX = 1 << 20
REQUEST_S = 10.0
_BUFFER_MAX = 1 << 20


def frame(kind: bytes, data: bytes = b"") -> bytes:
    return FRAME.pack(kind, len(data)) + data


def take_frame(buffer: bytearray) -> tuple[bytes, bytes] | None:
    """The next whole frame, removed from the buffer; None: not there yet. Raises ValueError."""
    if len(buffer) < FRAME.size:
        return None
    kind, length = FRAME.unpack_from(buffer)
    if length > FRAME_MAX:
        raise ValueError("frame too long")
    if len(buffer) < FRAME.size + length:
        return None
    data = bytes(buffer[FRAME.size : FRAME.size + length])
    del buffer[: FRAME.size + length]
    return kind, data


def read_token(path: str) -> bytes:
    return read_bytes(path).strip()


class Server:
    def __init__(self, state: State, port: int, token: bytes) -> None:
        if not token:
            raise ValueError("the token is empty")
        self._state = state
        self._token = token
        self._socket = listen(state.plan.address, port)
        state.loop.watch(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        _Call(self._state, connection, self._token)


def listen(address: str, port: int, backlog: int = 64) -> socket.socket:
    """At this address; a name means a pod, whose own address may be of either family: there at all of them."""
    is_number = all(char in "0123456789." for char in address) or ":" in address
    candidates = [(socket.AF_INET6 if ":" in address else socket.AF_INET, address)] if is_number else []
    problem: OSError | None = None
    for family, place in [*candidates, (socket.AF_INET6, "::"), (socket.AF_INET, "")]:
        try:
            listener = socket.socket(family)
        except OSError as error:
            problem = error
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if place == "::":
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((place, port))
            listener.listen(backlog)
            listener.setblocking(False)
            return listener
        except OSError as error:
            problem = error
            listener.close()
    raise OSError("port %d cannot be listened on: %s" % (port, problem))


class _Call:
    """One connection: a request, then the command's streams both ways, then its end."""

    def __init__(self, state: State, connection: socket.socket, token: bytes) -> None:
        self._state = state
        self._loop = state.loop
        self._socket = connection
        self._fd = connection.fileno()
        self._token = token
        self._in = bytearray()
        self._out = bytearray()
        self._pid = 0
        self._sources: dict[int, bytes] = {}  # the command's stdout and stderr: descriptor -> kind
        self._stdin = -1
        self._typed = bytearray()
        self._finished = False
        self._loop.watch(self._fd, self._ready, POLLIN)
        self._loop.after(self, REQUEST_S, self._close)

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
        try:
            while self._fd >= 0:
                got = take_frame(self._in)
                if got is None:
                    break
                self._handle(*got)
        except (ValueError, KeyError, TypeError, AttributeError):
            self._close()
            return
        self._flush()

    def _handle(self, kind: bytes, data: bytes) -> None:
        if kind == REQUEST and not self._pid:
            import hmac

            request = loads(data.decode("utf-8"))
            if not hmac.compare_digest(str(request["token"]).encode("utf-8"), self._token):
                raise ValueError("wrong token")
            self._loop.cancel(self)
            self._start(str(request["command"]))
        elif kind == STDIN and self._pid:
            self._typed += data
            self._feed(is_end=not data)
        else:
            raise ValueError("unexpected frame")

    def _start(self, command: str) -> None:
        stdin, out, err = os.pipe(), os.pipe(), os.pipe()
        try:
            self._pid = self._state.start(command, self._state.env, (stdin[0], out[1], err[1]), self._ended)
        except processes.StartError as error:
            self._send(STDERR, ("%s\n" % error).encode("utf-8"))
            self._send(END, dumps({"exit_code": error.exit_code}).encode("ascii"))
            self._finished = True
        for rank in self._state.ranks if self._pid else []:
            if not rank.alive:
                rank.begin(self._pid)
        for descriptor in (stdin[0], out[1], err[1]):
            os.close(descriptor)
        self._stdin = stdin[1]
        os.set_blocking(self._stdin, False)
        for descriptor, kind in ((out[0], STDOUT), (err[0], STDERR)):
            os.set_blocking(descriptor, False)
            self._sources[descriptor] = kind
            self._watch_source(descriptor)

    def _feed(self, is_end: bool) -> None:
        """Give the command its input; what it does not take is kept only up to a bound."""
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
        """Pass on what the command wrote. False: nothing there now, or its end."""
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
        """Send what is waiting; while too much waits the command's output is not read."""
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
        """The connection is over; a command that still runs ends with it."""
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
