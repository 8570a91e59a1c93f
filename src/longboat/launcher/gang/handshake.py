"""Authentication of incoming TCP connections: the run's token is proven before anything that was sent is parsed.

A connection opens with `PROOF_SIZE` bytes, an HMAC of the token that differs for every purpose, compared in constant
time. Then comes one frame, the request, of bounded size; with it the connection is handed over. Until then it is one
of few, is dropped at a deadline, and whatever it does wrong closes that connection only. What the request means is not
known here (`channel`, `starters.mpi_server`).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time

from ..node.jsonfiles import read_bytes
from ..node.loop import EventLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

FRAME = struct.Struct(">cI")
FRAME_MAX = 1 << 20
"""A frame is held in memory whole; the longest that is sent, a report with its stacks, is bounded below this."""
PROOF_SIZE = 32  # bytes of an HMAC with SHA-256
LINE, MPI = b"line", b"mpi"
DEADLINE_S = 10.0
"""From the connection to its request. Both are sent at once by a real peer; a busy machine may take seconds."""
UNPROVEN_MAX = 256
"""Connections that have not shown the token; far more than a gang has under way at one moment, as each takes one round
trip. On systems with few descriptors it is an eighth of them, so that strangers never use up what the gang needs."""
ACCEPTED_AT_ONCE = 64
"""In one turn of the loop: a flood of strangers must not keep the node from its other work."""
FULL_PAUSE_S = 0.2
"""How long nobody is accepted when the process has no descriptor left: poll would report the listener without end."""


def frame(kind: bytes, data: bytes = b"") -> bytes:
    return FRAME.pack(kind, len(data)) + data


def take_frame(buffer: bytearray, limit: int = FRAME_MAX) -> tuple[bytes, bytes] | None:
    """Take the next whole frame from the buffer; None: incomplete. Raises ValueError."""
    if len(buffer) < FRAME.size:
        return None
    kind, length = FRAME.unpack_from(buffer)
    if length > limit:
        raise ValueError("frame too long")
    if len(buffer) < FRAME.size + length:
        return None
    data = bytes(buffer[FRAME.size : FRAME.size + length])
    del buffer[: FRAME.size + length]
    return kind, data


def read_token(path: str) -> bytes:
    return read_bytes(path).strip()


def proof(token: bytes, purpose: bytes) -> bytes:
    """The HMAC that a connection opens with: proves the token, for this purpose only."""
    import hmac

    if not token:
        raise ValueError("the token is empty")
    return hmac.new(token, b"longboat " + purpose, "sha256").digest()


def listen(address: str, port: int, backlog: int = 64) -> socket.socket:
    """Listen at this address. A name means a pod, whose address may be IPv4 or IPv6: then on all addresses."""
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


def descriptor_limit() -> int:
    try:
        limit = os.sysconf("SC_OPEN_MAX")
    except (OSError, ValueError):
        return 1024
    return limit if limit > 0 else 1 << 20


class _Newcomer:
    """A connection that has not sent its request yet."""

    __slots__ = ("address", "buffer", "is_proven", "since", "socket")

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.socket = connection
        self.address = address
        self.buffer = bytearray()
        self.is_proven = False
        self.since = time.monotonic()


class Acceptor:
    """Accepts connections and hands over those that have proven the token and sent a request.

    `admit(connection, kind, data, rest)` gets the request's frame and what came after it. It owns the connection; one
    that it raises for is closed. When too many wait without proof the oldest goes: a real peer has sent its proof by
    the time it is accepted, so a flood of silent connections does not keep it out.
    """

    def __init__(
        self,
        loop: EventLoop,
        listener: socket.socket,
        expected: bytes,
        admit: Callable[[socket.socket, bytes, bytes, bytes], None],
        request_max: int = FRAME_MAX,
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._expected = expected
        self._admit = admit
        self._request_max = request_max
        self._unproven: dict[int, _Newcomer] = {}  # by descriptor, oldest first
        self._proven: dict[int, _Newcomer] = {}
        self._is_closed = False
        self.refused = 0
        self.on_refused: Callable[[str, str], None] = lambda address, reason: None
        loop.watch(listener.fileno(), self._accept)

    def close(self) -> None:
        self._is_closed = True
        self._loop.cancel(self)
        self._loop.cancel((self, "full"))
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        for newcomer in [*self._unproven.values(), *self._proven.values()]:
            self._drop(newcomer)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._accept_one():
                break
        self._set_deadline()

    def _accept_one(self) -> bool:
        try:
            connection, address = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._make_room()
            return False
        newcomer = _Newcomer(connection, str(address[0]))
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # gone already
            connection.close()
            return True
        self._unproven[connection.fileno()] = newcomer
        self._loop.watch(connection.fileno(), lambda: self._ready(newcomer))
        self._ready(newcomer)
        limit = descriptor_limit()
        while len(self._unproven) > max(4, min(UNPROVEN_MAX, limit // 8)):
            self._refuse(next(iter(self._unproven.values())), "too many at once")
        while len(self._proven) > max(8, limit // 4):
            self._refuse(next(iter(self._proven.values())), "too many at once")
        return True

    def _make_room(self) -> None:
        """Free a file descriptor: close the oldest unauthenticated connection, else pause accepting."""
        if self._unproven:
            self._refuse(next(iter(self._unproven.values())), "no descriptor is left")
            return
        self._loop.unwatch(self._listener.fileno())
        self._loop.after((self, "full"), FULL_PAUSE_S, self._listen_again)

    def _listen_again(self) -> None:
        if not self._is_closed:
            self._loop.watch(self._listener.fileno(), self._accept)

    def _set_deadline(self) -> None:
        waiting = [next(iter(each.values())).since for each in (self._unproven, self._proven) if each]
        if waiting:
            self._loop.after(self, max(0.0, min(waiting) + DEADLINE_S - time.monotonic()), self._expire)

    def _expire(self) -> None:
        latest = time.monotonic() - DEADLINE_S
        for newcomer in [*self._unproven.values(), *self._proven.values()]:
            if newcomer.since <= latest:
                self._refuse(newcomer, "nothing came in time")
        self._set_deadline()

    def _ready(self, newcomer: _Newcomer) -> None:
        """Serve a readable connection; any error closes that connection only."""
        try:
            self._advance(newcomer)
        except BlockingIOError:
            pass
        except Exception as error:
            self._refuse(newcomer, str(error) or type(error).__name__)

    def _advance(self, newcomer: _Newcomer) -> None:
        """Read from a connection. Nothing beyond the proof is read before it has been compared."""
        connection, buffer = newcomer.socket, newcomer.buffer
        while True:
            room = self._request_max + FRAME.size if newcomer.is_proven else PROOF_SIZE
            data = connection.recv(min(1 << 16, room - len(buffer)))
            if not data:
                self._drop(newcomer)
                return
            buffer += data
            if not newcomer.is_proven and len(buffer) == PROOF_SIZE:
                self._check(newcomer)
            elif newcomer.is_proven:
                request = take_frame(buffer, self._request_max)
                if request is not None:
                    self._forget(newcomer)
                    self._hand_over(newcomer, *request)
                    return

    def _check(self, newcomer: _Newcomer) -> None:
        import hmac

        if not hmac.compare_digest(bytes(newcomer.buffer), self._expected):
            raise ValueError("it does not know the run's token")
        newcomer.buffer.clear()
        newcomer.is_proven = True
        descriptor = newcomer.socket.fileno()
        self._proven[descriptor] = self._unproven.pop(descriptor)

    def _hand_over(self, newcomer: _Newcomer, kind: bytes, data: bytes) -> None:
        try:
            self._admit(newcomer.socket, kind, data, bytes(newcomer.buffer))
        except Exception as error:
            newcomer.socket.close()
            self.refused += 1
            self.on_refused(newcomer.address, str(error) or type(error).__name__)

    def _forget(self, newcomer: _Newcomer) -> None:
        descriptor = newcomer.socket.fileno()
        self._loop.unwatch(descriptor)
        self._unproven.pop(descriptor, None)
        self._proven.pop(descriptor, None)

    def _drop(self, newcomer: _Newcomer) -> None:
        if newcomer.socket.fileno() >= 0:
            self._forget(newcomer)
            newcomer.socket.close()

    def _refuse(self, newcomer: _Newcomer, reason: str) -> None:
        self._drop(newcomer)
        self.refused += 1
        self.on_refused(newcomer.address, reason)
