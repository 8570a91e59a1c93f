"""The channel between launchers (the "line" of plans and gang files): numbered messages between node 0 and every other
node, over one TCP connection after another.

A connection may break at any moment: the other side connects again, both tell what they have, and what the other has
not is sent again, so nothing is lost and nothing comes twice. Whoever connects proves the token first (`handshake`,
whose frames these are). What the messages mean is not known here (`messages`, `membership`, `coordinator`).
"""

from __future__ import annotations

import os
import socket
import struct
import time

from ..node.jsonfiles import dumps, loads
from ..node.loop import POLLIN, POLLOUT, EventLoop
from .handshake import LINE, Acceptor, frame, listen, proof, take_frame
from .messages import GONE_ON, count_of, under_way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

HELLO, WELCOME, REFUSED, LATER, MESSAGE, ACK, PING = b"H", b"W", b"N", b"L", b"M", b"A", b"P"
HELLO_MAX = 4096
"""Bytes of a greeting: a name, a session and a number."""
ANSWER_S = 10.0
"""How long node 0 may take to answer a greeting, however slowly its bytes come."""
BACKLOG = 1024
"""Connections that the kernel holds for us: in a flood, the room that real peers stand in until they are accepted."""
_SEQ = struct.Struct(">Q")
_READ = 1 << 16  # a frame is rarely larger


class Channel:
    """Reliable messages between node 0 and one other node; outlives its connections."""

    def __init__(self, loop: EventLoop, on_message: Callable[[dict[str, Any]], None], ping_s: float = 5.0) -> None:
        self._loop = loop
        self._on_message = on_message
        self._ping_s = ping_s
        self.on_heard: Callable[[], None] = lambda: None
        self.on_break: Callable[[], None] = lambda: None
        self.on_nonsense: Callable[[str], None] = lambda text: None
        self.hung_up: float | None = None  # when the other side closed the connection; a living one dials again
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
        """Whether the other side has acknowledged everything."""
        return not self._unacked

    def send(self, message: dict[str, Any]) -> None:
        self._sent += 1
        self._unacked.append((self._sent, dumps(message).encode("ascii")))
        if self._socket is not None:
            self._put(MESSAGE, _SEQ.pack(self._sent) + self._unacked[-1][1])
            self._flush()

    def attach(self, connection: socket.socket, got: int, rest: bytes, first: bytes = b"") -> None:
        """Continue over this connection; the other side has everything up to `got`. `first` is sent before all else."""
        if got > self._sent:
            raise ValueError("the other side has messages that were never sent")
        self.drop()
        self.hung_up = None
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
            self.hung_up = time.monotonic()
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
                taken = take_frame(self._in)
                if taken is None:
                    return
                self._take(*taken)
        except Exception as error:  # whatever it is that the other side sent: it costs that connection, nothing else
            self.on_nonsense("%s: %s" % (type(error).__name__, error))
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


class ChannelListener:
    """Node 0's listener: hands each authenticated connection to its node's channel.

    A launcher says of which attempt it is, and whether it is `new`: no member of any yet. One that takes the place of a
    lost member has the number of its pod, and is told the attempt under way. A member of an earlier one is refused.
    """

    def __init__(self, loop: EventLoop, address: str, port: int, token: bytes, channels: dict[str, Channel]) -> None:
        self._channels = channels
        self._sessions: dict[str, str] = {}
        self.under_way: dict[str, Any] = {"attempt": 0}
        self.replaces = False  # whether one that comes under a known name may take its place, in the next attempt
        self.is_over = False  # the gang has ended, and is not restarted in place
        self.on_later: Callable[[str], None] = lambda node: None  # a new launcher was told of the attempt
        self.on_stranger: Callable[[str], None] = lambda node: None  # somebody else came under a known node's name
        self.on_refused: Callable[[str], None] = lambda node: None
        self.takes_place: Callable[[str], bool] = lambda node: (
            False
        )  # a new launcher is let in at once, for a known one
        expected = proof(token, LINE)
        listener = listen(address, port, backlog=max(BACKLOG, len(channels)))
        self.acceptor = Acceptor(loop, listener, expected, self._welcome, HELLO_MAX)

    def _welcome(self, connection: socket.socket, kind: bytes, data: bytes, rest: bytes) -> None:
        """Accept a connection of a member; raises for any other, which the acceptor then closes."""
        if kind != HELLO:
            raise ValueError("no greeting")
        hello = loads(data.decode("utf-8"))
        node, session, got = hello["node"], hello["session"], count_of(hello["got"])
        if not isinstance(node, str) or not isinstance(session, str):
            raise ValueError("no greeting")
        own = int(self.under_way["attempt"])
        attempt, is_new = count_of(hello.get("attempt", own)), hello.get("new") is True
        if attempt < own:  # it does not know yet which node its pod plays
            node = str(hello.get("pod") or node)
            node = (self.under_way.get("places") or {}).get(node, node)
        channel = self._channels[node]
        refusal = self._refusal(node, attempt, hello.get("new"))
        if not refusal and attempt > own:
            raise ValueError("it is of a later attempt")
        if refusal:
            self.on_refused(node)
            _answer_last(connection, REFUSED, refusal)
            return
        if self._sessions.get(node, session) != session and is_new and self.replaces and self.takes_place(node):
            del self._sessions[node]
            channel = self._channels[node]
        if self._sessions.get(node, session) != session:
            if is_new or not self.replaces:
                self.on_stranger(node)
            if is_new and self.replaces:
                raise ValueError("another launcher has this name")  # it comes again
            _answer_last(connection, REFUSED, b"another launcher came under this name before")
            return
        if attempt < own:
            self.on_later(node)
            _answer_last(connection, LATER, dumps(self.under_way).encode("ascii"))
            return
        self._sessions[node] = session
        channel.attach(connection, got, rest, frame(WELCOME, dumps({"got": channel.got}).encode("ascii")))

    def _refusal(self, node: str, attempt: int, new: object) -> bytes:
        """Why this launcher can never be let in; empty where it may be."""
        if attempt < int(self.under_way["attempt"]) and new is not True:
            return GONE_ON.encode()
        if self.is_over and new is True:
            return b"the gang has ended"
        is_first = self.replaces and not self.under_way.get("ended")  # there was no attempt before with this node 0
        if is_first and new is False and node not in self._sessions:
            return b"it is of a gang whose node 0 is gone"
        return b""

    def close(self) -> None:
        self.acceptor.close()
        for channel in self._channels.values():
            channel.drop()


class Dialer:
    """Connects to node 0 and reconnects, in a thread, since a lookup may block."""

    def __init__(
        self, loop: EventLoop, place: tuple[str, int], token: bytes, greeting: dict[str, Any], channel: Channel
    ) -> None:
        import _thread

        self._loop = loop
        self._place = place
        self._proof = proof(token, LINE)
        self._greeting = greeting
        self._channel = channel
        self._made: list[tuple[socket.socket, int, bytes]] = []
        self._refused = ""
        self._later: dict[str, Any] | None = None
        self._wanted = _thread.allocate_lock()  # held while the connection is up
        self._is_closed = False
        self.on_refused: Callable[[str], None] = lambda reason: None
        self.on_later: Callable[[dict[str, Any]], None] = lambda under_way: None
        self.problem = ""
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        loop.watch(self._wake_r, self._take)
        channel.on_break = self.again
        self._wanted.acquire()
        _thread.start_new_thread(self._dial, ())

    @property
    def is_refused(self) -> bool:
        return bool(self._refused)

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
            except Exception as error:  # this thread is the only way back to node 0: nothing may end it
                self.problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 1.5)

    def _connect(self) -> tuple[socket.socket, int, bytes]:
        connection = socket.create_connection(self._place, timeout=5.0)
        try:
            _tune(connection)
            hello = {**self._greeting, "got": self._channel.got}
            connection.sendall(self._proof + frame(HELLO, dumps(hello).encode("ascii")))
            kind, data, rest = _answer(connection)
            if kind == REFUSED:
                self._refused = data.decode("utf-8", "replace")
                os.write(self._wake_w, b"x")
                raise OSError(self._refused)
            if kind == LATER:
                self._later = under_way(loads(data.decode("utf-8")))
                os.write(self._wake_w, b"x")
                raise OSError("it is told which attempt is under way")
            if kind != WELCOME:
                raise ValueError("not a launcher of this run")
            return connection, count_of(loads(data.decode("utf-8"))["got"]), rest
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
        if self._later is not None:
            self.on_later(self._later)
        while self._made:
            connection, got, rest = self._made.pop(0)
            try:
                self._channel.attach(connection, got, rest)
            except ValueError as error:
                self.problem = str(error)
                connection.close()
                self.again()


def _answer_last(connection: socket.socket, kind: bytes, data: bytes) -> None:
    """Answer a greeting and hang up. A few kilobytes fit any new socket."""
    connection.send(frame(kind, data))
    connection.close()


def _answer(connection: socket.socket) -> tuple[bytes, bytes, bytes]:
    """Read the first frame, and the bytes after it. Raises OSError, ValueError."""
    buffer, until = bytearray(), time.monotonic() + ANSWER_S
    while True:
        taken = take_frame(buffer)
        if taken is not None:
            return taken[0], taken[1], bytes(buffer)
        if time.monotonic() > until:
            raise OSError("node 0 did not answer in time")
        try:
            data = connection.recv(_READ)
        except ConnectionResetError:  # closed, with something of ours unread
            data = b""
        if not data:
            raise OSError("node 0 closed the connection: it may have another token")
        buffer += data


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
