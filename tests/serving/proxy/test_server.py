"""The proxy between real sockets: streams, retries, upgrades, hostile clients."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from longboat.serving.proxy import server as proxy_module
from longboat.serving.proxy.backends import Backend, Backends
from longboat.serving.proxy.server import Proxy

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Setting:
    """A proxy and the servers behind it, on one loop."""

    def __init__(self) -> None:
        self.backends = Backends()
        self.proxy = Proxy(self.backends, hold_s=0.3)
        self.port = 0
        self._servers: list[asyncio.Server] = []
        self.ready: list[Backend] = []

    async def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        await self.proxy.start(listener)

    async def add(self, handler: Handler, version: int = 1) -> Backend:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await handler(reader, writer)
            writer.close()

        server = await asyncio.start_server(guarded, "127.0.0.1", 0)
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        backend = Backend(f"r{len(self._servers)}", version, "127.0.0.1", port)
        self.ready.append(backend)
        self.backends.set_ready(self.ready)
        return backend

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, data: bytes) -> bytes:
        """All that comes back until the proxy closes the connection."""
        reader, writer = await self.client()
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(-1), 20)
        writer.close()
        return answer

    async def close(self) -> None:
        await self.proxy.close()
        for server in self._servers:
            server.close()


def scenario(function: Callable[[Setting], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        setting = Setting()
        await setting.start()
        try:
            await asyncio.wait_for(function(setting), 30)
        finally:
            await setting.close()

    def test() -> None:
        asyncio.run(run())

    test.__name__ = function.__name__
    test.__doc__ = function.__doc__
    return test


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def said(text: bytes) -> Handler:
    """Answers every request on a connection with this text."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await head_of(reader)
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    await reader.readexactly(int(line.split(b":")[1]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            await writer.drain()

    return handle


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@scenario
async def test_connections_are_kept_on_both_sides(setting: Setting) -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await said(b"hello")(reader, writer)

    await setting.add(handle)
    answer = await setting.send(GET + GET + LAST)
    assert answer.count(b"hello") == 3 and answer.count(b"Connection: close") == 1
    assert connections == 1
    assert (setting.backends.answered, setting.backends.failed, setting.ready[0].in_flight) == (3, 0, 0)


@scenario
async def test_parts_of_an_answer_do_not_wait_for_acknowledgements(setting: Setting) -> None:
    await setting.add(said(b"hello"))
    reader, writer = await setting.client()
    writer.write(GET)
    await head_of(reader)
    (client,) = setting.proxy._clients
    assert client.writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    writer.close()


@scenario
async def test_a_replica_that_dies_loses_no_request(setting: Setting) -> None:
    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        await reader.readexactly(3)
        writer.transport.abort()

    await setting.add(dies)
    await setting.add(said(b"well"))
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    for _ in range(8):
        assert (await setting.send(post)).endswith(b"well")
    assert setting.backends.failed == 0


@scenario
async def test_an_answer_that_breaks_off_is_not_a_whole_one(setting: Setting) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()

    await setting.add(breaks)
    reader, writer = await setting.client()
    writer.write(GET)
    data = b""
    with contextlib.suppress(ConnectionResetError):
        data = await reader.read(-1)
    assert not data.endswith(b"0123456789"[:10]) and setting.backends.failed == 1
    writer.close()


@scenario
async def test_without_a_ready_replica_requests_wait_then_are_refused(setting: Setting) -> None:
    waiting = asyncio.ensure_future(setting.send(LAST))
    while setting.backends.waiting == 0:
        await asyncio.sleep(0)
    assert setting.backends.in_flight == 1
    await setting.add(said(b"late"))
    assert (await waiting).endswith(b"late")
    setting.backends.set_ready([])
    refused = await setting.send(LAST)
    assert refused.startswith(b"HTTP/1.1 503 ") and b"Retry-After" in refused


@scenario
async def test_bodies_stream_both_ways_in_bounded_memory(setting: Setting) -> None:
    """A large upload is answered piece by piece, before it has ended."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            piece = await reader.readexactly(size + 2)
            writer.write(b"%x\r\n%s" % (size, piece))
            await writer.drain()
            if size == 0:
                return

    await setting.add(echo)
    reader, writer = await setting.client()
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert b"chunked" in await head_of(reader)
    for _ in range(64):  # 8 MiB, each piece back before the next is sent
        piece = b"x" * (128 << 10)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert int(await reader.readuntil(b"\r\n"), 16) == len(piece)
        assert await reader.readexactly(len(piece) + 2) == piece + b"\r\n"
    writer.write(b"0\r\n\r\n")
    assert await reader.readexactly(5) == b"0\r\n\r\n"
    writer.close()


@scenario
async def test_a_slow_reader_does_not_fill_the_proxy(setting: Setting) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 30))
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    await setting.add(flood)
    reader, writer = await setting.client()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(GET)
    last = -1
    while sent != last or sent == 0:  # until nothing moves any more
        last = sent
        await asyncio.sleep(0.2)
    assert sent < 64 << 20  # what kernel buffers take, far from all of it
    writer.transport.abort()


@scenario
async def test_an_upgrade_becomes_a_tunnel(setting: Setting) -> None:
    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        assert b"Upgrade: websocket" in head and b"Connection: Upgrade" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        while data := await reader.read(100):
            writer.write(data.upper())

    backend = await setting.add(upgrade)
    reader, writer = await setting.client()
    writer.write(b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert b" 101 " in await head_of(reader)
    assert await reader.readexactly(2) == b"hi"
    writer.write(b"abc")
    assert await reader.readexactly(3) == b"ABC"
    assert backend.in_flight == 1
    writer.close()
    while backend.in_flight:
        await asyncio.sleep(0.01)


@scenario
async def test_a_canary_takes_its_share(setting: Setting) -> None:
    await setting.add(said(b"old"))
    await setting.add(said(b"new"), version=2)
    setting.backends.set_ready(setting.ready, canary=2, weight=25)
    names: collections.Counter[int] = collections.Counter()
    for _ in range(2000):
        chosen = setting.backends.choose()
        assert chosen is not None
        names[chosen.version] += 1
    assert 400 < names[2] < 600
    setting.backends.set_ready(setting.ready[1:], canary=2, weight=25)
    assert (await setting.send(LAST)).endswith(b"new")  # better a canary than nobody


@scenario
async def test_hostile_clients_get_an_answer_or_nothing(setting: Setting) -> None:
    await setting.add(said(b"x"))
    for data, status in (
        (b"GET / HTTP/1.1\r\n\r\n", b" 400 "),
        (b"\x16\x03\x01\r\n\r\n", b" 400 "),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", b" 431 "),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b" 400 "),
    ):
        with contextlib.suppress(ConnectionResetError):  # what was not read is thrown away with the connection
            assert status in await setting.send(data)
    assert (await setting.send(LAST)).endswith(b"x")
    assert setting.ready[0].in_flight == 0


@scenario
async def test_continue_is_said_where_it_is_expected(setting: Setting) -> None:
    await setting.add(said(b"done"))
    reader, writer = await setting.client()
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert await head_of(reader) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert b" 200 " in await head_of(reader)
    writer.close()


@scenario
async def test_an_old_client_gets_an_answer_without_chunks(setting: Setting) -> None:
    async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        assert head.startswith(b"GET / HTTP/1.0") and b"Connection: close" in head
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    await setting.add(until_closed)
    assert (await setting.send(b"GET / HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\nall of it")


def test_too_many_clients_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "MOST_CLIENTS", 1)

    async def run(setting: Setting) -> None:
        await setting.add(said(b"x"))
        first: Any = await setting.client()
        first[1].write(GET)
        await head_of(first[0])
        assert (await setting.send(b"")).startswith(b"HTTP/1.1 503 ")
        first[1].close()

    scenario(run)()
