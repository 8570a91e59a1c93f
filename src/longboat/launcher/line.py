"""The line of a gang: numbered messages between node 0 and every other node, over one TCP connection after another.

A connection may break at any moment: the other side connects again, both tell what they have, and what the other has
not is sent again, so nothing is lost and nothing comes twice. Frames are those of `remote`; the token comes first. What
the messages mean is not known here (`membership`, `verdicts`).
"""

from __future__ import annotations

import os
import socket
import struct
import time

from .jsonfiles import dumps, loads
from .loop import POLLIN, POLLOUT, Loop
from .remote import FRAME, frame, listen, take_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

HELLO, WELCOME, REFUSED, MESSAGE, ACK, PING = b"H", b"W", b"N", b"M", b"A", b"P"
HELLO_S = 10.0
HELLO_MAX = 4096
PENDING_MAX = 2048
_SEQ = struct.Struct(">Q")
_READ = 1 << 16


class Channel:
    """One node's messages both ways. Outlives its connections."""

    def __init__(self, loop: Loop, on_message: Callable[[dict[str, Any]], None], ping_s: float = 5.0) -> None:
        self._loop = loop
        self._on_message = on_message
        self._ping_s = ping_s
        self.on_heard: Callable[[], None] = lambda: None
        self.on_break: Callable[[], None] = lambda: None
        self.heard = time.monotonic()  # the last word
        self.got = 0  # number of the last message that came
        self._sent = 0
        self._unacked: list[tuple[int, bytes]] = []
        self._socket: socket.socket | None = None
        self._in = bytearray()
        self._out = bytearray()

    @property
    def is_up(self) -> bool:
        return self._socket is not None

    @property
    def is_idle(self) -> bool:
        """Everything that was sent has arrived."""
        return not self._unacked

    def send(self, message: dict[str, Any]) -> None:
        self._sent += 1
        self._unacked.append((self._sent, dumps(message).encode("ascii")))
        if self._socket is not None:
            self._put(MESSAGE, _SEQ.pack(self._sent) + self._unacked[-1][1])
            self._flush()

    def attach(self, connection: socket.socket, got: int, rest: bytes, first: bytes = b"") -> None:
        """Go on over this connection; the other side has everything up to `got`. `first` is sent before all else."""
        self.drop()
        connection.setblocking(False)
        self._socket = connection
        self._in = bytearray(rest)
        self._out = bytearray(first)
        self.heard = time.monotonic()
        self._forget(got)
        for number, data in self._unacked:
            self._put(MESSAGE, _SEQ.pack(number) + data)
        self._loop.after(self, self._ping_s, self._ping)
        self._loop.watch(connection.fileno(), self._ready)
        self.on_heard()
        self._handle()
        self._flush()

    def drop(self) -> None:
        """Close the connection; the channel stays."""
        connection, self._socket = self._socket, None
        if connection is not None:
            self._loop.cancel(self)
            self._loop.unwatch(connection.fileno())
            connection.close()

    def _break(self) -> None:
        if self._socket is not None:
            self.drop()
            self.on_break()

    def _ping(self) -> None:
        if time.monotonic() - self.heard > 3 * self._ping_s:
            self._break()
            return
        self._loop.after(self, self._ping_s, self._ping)
        self._put(PING, b"")
        self._flush()

    def _ready(self) -> None:
        connection = self._socket
        if connection is None:
            return
        try:
            data = connection.recv(_READ)
        except BlockingIOError:
            self._flush()
            return
        except OSError:
            data = b""
        if not data:
            self._break()
            return
        self.heard = time.monotonic()
        self.on_heard()
        self._in += data
        self._handle()
        self._flush()

    def _handle(self) -> None:
        try:
            while self._socket is not None:
                found = take_frame(self._in)
                if found is None:
                    return
                self._take(*found)
        except (ValueError, KeyError, TypeError, AttributeError, struct.error):
            self._break()

    def _take(self, kind: bytes, data: bytes) -> None:
        if kind == ACK:
            self._forget(_SEQ.unpack(data)[0])
        elif kind == MESSAGE:
            number = _SEQ.unpack_from(data)[0]
            if number == self.got + 1:
                self.got = number
                self._on_message(loads(data[_SEQ.size :].decode("utf-8")))
            elif number > self.got:
                raise ValueError("a message is missing")
            self._put(ACK, _SEQ.pack(self.got))
        elif kind != PING:
            raise ValueError("unexpected frame")

    def _forget(self, got: int) -> None:
        self._unacked = [each for each in self._unacked if each[0] > got]

    def _put(self, kind: bytes, data: bytes) -> None:
        if self._socket is not None:
            self._out += frame(kind, data)

    def _flush(self) -> None:
        connection = self._socket
        if connection is None:
            return
        try:
            while self._out:
                del self._out[: connection.send(self._out[:_READ])]
        except BlockingIOError:
            pass
        except OSError:
            self._break()
            return
        self._loop.watch(connection.fileno(), self._ready, POLLIN | POLLOUT if self._out else POLLIN)


class Listener:
    """Node 0's side: takes connections, asks for the token, hands each to the channel of its node."""

    def __init__(self, loop: Loop, address: str, port: int, token: bytes, channels: dict[str, Channel]) -> None:
        if not token:
            raise ValueError("the token is empty")
        self._loop = loop
        self._token = token
        self._channels = channels
        self._sessions: dict[str, str] = {}
        self._pending = 0
        self.on_stranger: Callable[[str], None] = lambda node: None  # somebody else came under a known node's name
        self._socket = listen(address, port, backlog=max(128, len(channels)))
        loop.watch(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(64):
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self._pending >= PENDING_MAX:
                connection.close()
                continue
            self._pending += 1
            _tune(connection)
            connection.setblocking(False)
            _Greeting(self._loop, connection, self._welcome, self._gone)

    def _gone(self) -> None:
        self._pending -= 1

    def _welcome(self, connection: socket.socket, hello: dict[str, Any], rest: bytes) -> None:
        """Raises ValueError for whoever does not belong here."""
        import hmac

        if not hmac.compare_digest(str(hello["token"]).encode("utf-8", "replace"), self._token):
            raise ValueError("wrong token")
        node, session, got = str(hello["node"]), str(hello["session"]), int(hello["got"])
        channel = self._channels[node]
        if self._sessions.setdefault(node, session) != session:
            connection.setblocking(True)
            connection.settimeout(1.0)
            connection.sendall(frame(REFUSED, b"another launcher came under this name before"))
            connection.close()
            self.on_stranger(node)
            return
        channel.attach(connection, got, rest, frame(WELCOME, dumps({"got": channel.got}).encode("ascii")))

    def close(self) -> None:
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        for channel in self._channels.values():
            channel.drop()


class _Greeting:
    """A connection that has not shown its token yet."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        welcome: Callable[[socket.socket, dict[str, Any], bytes], None],
        gone: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._socket = connection
        self._welcome = welcome
        self._gone = gone
        self._in = bytearray()
        self._is_released = False
        loop.watch(connection.fileno(), self._ready)
        loop.after(self, HELLO_S, self._close)

    def _ready(self) -> None:
        try:
            data = self._socket.recv(HELLO_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._in += data
        try:
            if not data or (len(self._in) >= FRAME.size and FRAME.unpack_from(self._in)[1] > HELLO_MAX):
                raise ValueError("no greeting")
            found = take_frame(self._in)
            if found is None:
                return
            if found[0] != HELLO:
                raise ValueError("no greeting")
            hello = loads(found[1].decode("utf-8"))
            self._release()
            self._welcome(self._socket, hello, bytes(self._in))
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            self._close()

    def _release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        self._loop.cancel(self)
        self._loop.unwatch(self._socket.fileno())
        self._gone()

    def _close(self) -> None:
        self._release()
        self._socket.close()


class Dialer:
    """The other nodes' side: connects to node 0, again and again, in a thread of its own for a lookup may block."""

    def __init__(self, loop: Loop, place: tuple[str, int], greeting: dict[str, Any], channel: Channel) -> None:
        import _thread

        self._loop = loop
        self._place = place
        self._greeting = greeting
        self._channel = channel
        self._made: list[tuple[socket.socket, int, bytes]] = []
        self._refused = ""
        self._wanted = _thread.allocate_lock()  # held while the connection is up
        self._is_closed = False
        self.on_refused: Callable[[str], None] = lambda reason: None
        self.problem = ""
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        loop.watch(self._wake_r, self._take)
        channel.on_break = self.again
        self._wanted.acquire()
        _thread.start_new_thread(self._dial, ())

    def again(self) -> None:
        if self._wanted.locked():
            self._wanted.release()

    def close(self) -> None:
        self._is_closed = True
        self._loop.unwatch(self._wake_r)
        self._channel.on_break = lambda: None
        self._channel.drop()

    def _dial(self) -> None:
        pause_s = 0.1
        while not self._is_closed and not self._refused:
            try:
                self._made.append(self._connect())
                os.write(self._wake_w, b"x")
                self._wanted.acquire()  # until the connection breaks
                pause_s = 0.1
            except (OSError, ValueError, KeyError, UnicodeError) as error:
                self.problem = getattr(error, "strerror", None) or str(error)
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 1.5)

    def _connect(self) -> tuple[socket.socket, int, bytes]:
        connection = socket.create_connection(self._place, timeout=5.0)
        try:
            _tune(connection)
            hello = {**self._greeting, "got": self._channel.got}
            connection.sendall(frame(HELLO, dumps(hello).encode("ascii")))
            buffer = bytearray()
            while True:
                found = take_frame(buffer)
                if found is not None:
                    break
                data = connection.recv(_READ)
                if not data:
                    raise OSError("node 0 closed the connection")
                buffer += data
            if found[0] == REFUSED:
                self._refused = found[1].decode("utf-8", "replace")
                os.write(self._wake_w, b"x")
                raise OSError(self._refused)
            if found[0] != WELCOME:
                raise ValueError("not a launcher of this run")
            return connection, int(loads(found[1].decode("utf-8"))["got"]), bytes(buffer)
        except BaseException:
            connection.close()
            raise

    def _take(self) -> None:
        try:
            os.read(self._wake_r, 64)
        except BlockingIOError:
            pass
        if self._refused:
            self.on_refused(self._refused)
        while self._made:
            self._channel.attach(*self._made.pop(0))


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
