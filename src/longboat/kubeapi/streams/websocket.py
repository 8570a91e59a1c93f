"""WebSocket client (RFC 6455), as far as Kubernetes uses it: binary messages over one socket.

Reading and writing may happen in two threads. Not here: what the messages mean (`exec`).
"""

from __future__ import annotations

import base64
import hashlib
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from longboat.kubeapi.client import Client, as_text
from longboat.kubeapi.connection.transport import ApiRequest, end, reason_of
from longboat.kubeapi.errors import Unreachable

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
LARGEST = 16 << 20
"""Of one message, in however many frames. Kubernetes sends at most 32 KiB at once."""
MOST_PONGS = 64  # answers to pings that wait until something can be sent; the latest are enough
PING_S = 10.0  # load balancers drop what is quiet for a minute
SILENCE_S = 45.0
"""Every ping is answered: silence for longer means that nobody is there any more."""


class WebSocketClosed(Exception):
    """The other side said goodbye properly."""


def mask(content: bytes, key: bytes) -> bytes:
    """XOR with a repeated key of four bytes; also its own inverse."""
    size = len(content)
    repeated = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(content, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def frame(opcode: int, content: bytes) -> bytes:
    """One message of ours, in one frame, masked as clients must."""
    size, key = len(content), os.urandom(4)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + key + mask(content, key)


class FrameParser:
    """From bytes as they come to whole frames. Pure: no socket."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, content: bytes) -> None:
        self._rest += content

    def next(self) -> tuple[bool, int, bytes] | None:
        """(is the last of its message, opcode, content), or None until more bytes have come."""
        rest = self._rest
        if len(rest) < 2:
            return None
        size, start = rest[1] & 0x7F, 2
        if size == 126:
            size, start = (struct.unpack_from("!H", rest, 2)[0] if len(rest) >= 4 else -1), 4
        elif size == 127:
            size, start = (struct.unpack_from("!Q", rest, 2)[0] if len(rest) >= 10 else -1), 10
        if rest[1] & 0x80 or rest[0] & 0x70 or size > LARGEST:
            raise Unreachable("the server sent something that is not a WebSocket frame")
        if size < 0 or len(rest) < start + size:
            return None
        message = bool(rest[0] & 0x80), rest[0] & 0x0F, bytes(rest[start : start + size])
        del rest[: start + size]
        return message


class WebSocket:
    """One open connection. `protocol` is the one that the server chose."""

    def __init__(self, sock: socket.socket, protocol: str) -> None:
        self.protocol = protocol
        self._sock = sock
        self._sock.setblocking(False)
        # One call into TLS at a time, none of them blocking: its state is not made for two threads.
        self._tls = threading.Lock()
        self._sending = threading.Lock()
        self._outgoing = bytearray()
        self._control: deque[bytes] = deque(maxlen=MOST_PONGS)
        self._frames = FrameParser()
        self._parts: list[bytes] = []
        self._heard = self._pinged = self._left = time.monotonic()
        self.is_closed = False

    def send(self, content: bytes, opcode: int = BINARY) -> None:
        """One message. `Unreachable` when the connection is broken."""
        with self._sending:
            self._outgoing += frame(opcode, content)
            self._flush(waits=True)
        self._flush_control()

    def _send_soon(self, content: bytes, opcode: int) -> None:
        """For the reader, who must never wait for a sender: that one may be waiting for what is to be read."""
        self._control.append(frame(opcode, content))
        self._flush_control()

    def _flush_control(self) -> None:
        while self._control and self._sending.acquire(blocking=False):
            try:
                while self._control:
                    self._outgoing += self._control.popleft()
                self._flush(waits=False)
            finally:
                self._sending.release()

    def _flush(self, *, waits: bool) -> None:
        while self._outgoing:
            try:
                with self._tls:
                    sent = self._sock.send(self._outgoing)
                del self._outgoing[:sent]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                if not waits:
                    return
                self._select(writes=True, timeout_s=1.0)
            except (OSError, ValueError) as error:
                raise Unreachable(f"the connection broke: {reason_of(error)}") from error

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """The next message, or None when none came in time. `WebSocketClosed` at the proper end, `Unreachable` at any
        other."""
        began = time.monotonic()
        if began - self._left > 1.0:
            self._heard = began  # Nobody listened: the silence was ours.
        try:
            return self._receive(None if timeout_s is None else began + timeout_s)
        finally:
            self._left = time.monotonic()

    def _receive(self, deadline: float | None) -> bytes | None:
        while True:
            message = self._next_message()
            if message is not None:
                return message
            content = self._read()
            if content is None:
                self._check()
                left = PING_S / 2 if deadline is None else min(PING_S / 2, deadline - time.monotonic())
                if left <= 0:
                    return None
                self._select(writes=False, timeout_s=left)
            elif content:
                self._heard = time.monotonic()
                self._frames.feed(content)
            else:
                raise Unreachable("the connection broke: the server closed it without a word")

    def _next_message(self) -> bytes | None:
        while (next_frame := self._frames.next()) is not None:
            is_last, opcode, content = next_frame
            if opcode == CLOSE:
                self.close()
                raise WebSocketClosed(content[2:].decode(errors="replace"))
            if opcode == PING:
                self._send_soon(content, PONG)
            elif opcode != PONG:
                self._parts.append(content)
                if len(self._parts) > 1 and sum(map(len, self._parts)) > LARGEST:
                    raise Unreachable(f"the server sent a message of more than {LARGEST >> 20} MiB")
                if is_last:
                    whole, self._parts = b"".join(self._parts), []
                    return whole
        return None

    def _read(self) -> bytes | None:
        try:
            with self._tls:
                return self._sock.recv(1 << 16)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return None
        except (OSError, ValueError) as error:
            raise Unreachable(f"the connection broke: {reason_of(error)}") from error

    def _check(self) -> None:
        """Ask whether the other side is still there; give up when it has not answered for too long."""
        now = time.monotonic()
        if now - self._heard > SILENCE_S:
            raise Unreachable(f"the connection broke: silent for {SILENCE_S:.0f} s")
        if now - self._pinged > PING_S:
            self._pinged = now
            self._send_soon(b"", PING)

    def _select(self, *, writes: bool, timeout_s: float) -> None:
        if self.is_closed:
            raise Unreachable("the connection was closed")
        try:
            if hasattr(select, "poll"):  # numbers above 1023 are nothing for select()
                poller = select.poll()
                poller.register(self._sock, select.POLLOUT if writes else select.POLLIN)
                poller.poll(timeout_s * 1000)
            else:
                select.select([self._sock], [self._sock] if writes else [], [], timeout_s)
        except (OSError, ValueError) as error:
            raise Unreachable(f"the connection broke: {reason_of(error)}") from error

    def close(self) -> None:
        """End it, whatever goes on. Another thread that reads or writes gets `Unreachable`."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            with self._tls:
                self._sock.send(frame(CLOSE, struct.pack("!H", 1000)))
        except (OSError, ValueError):
            pass
        end(self._sock)
        with self._tls:
            self._sock.close()


def connect(
    client: Client, path: str, query: dict[str, Any], protocols: Sequence[str], *, within_s: float | None = None
) -> WebSocket:
    """Open one, in time; the server chooses among the protocols. An `ApiError` when it refuses."""
    key = base64.b64encode(os.urandom(16))
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key.decode(),
        "Sec-WebSocket-Protocol": ", ".join(protocols),
        "Accept": "*/*",
    }
    sock, answer = client.transport.upgrade(ApiRequest("GET", path + as_text(query), headers), within_s)
    proof = base64.b64encode(hashlib.sha1(key + MAGIC, usedforsecurity=False).digest()).decode()
    chosen = answer.headers.get("Sec-WebSocket-Protocol", "")
    if answer.headers.get("Sec-WebSocket-Accept", "") != proof or chosen not in protocols:
        sock.close()
        raise Unreachable(f"the server speaks none of {', '.join(protocols)}")
    return WebSocket(sock, chosen)
