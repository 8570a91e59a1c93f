"""The proxy between clients that mean harm, or leave: nothing of one reaches another, and nothing is left of them."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from longboat.serving.proxy import server as proxy_module
from longboat.serving.proxy.backends import Backend
from tests.serving.proxy.test_server import LAST, Setting, head_of, said, scenario

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answers_paths(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that reads no bodies, as many do for GET: what follows a head is the next request to it."""
    while True:
        text = (await head_of(reader)).split(b" ", 2)[1]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))


def request(method: bytes, path: bytes, body: bytes = b"") -> bytes:
    return b"%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (method, path, len(body), body)


async def answer_of(setting: Setting, data: bytes) -> bytes:
    reader, writer = await setting.client()
    writer.write(data)
    head = await head_of(reader)
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    text = await reader.readexactly(length)
    writer.close()
    return text


async def quiet(backend: Backend) -> None:
    while backend.in_flight:
        await asyncio.sleep(0.01)


@scenario
async def test_a_request_inside_a_body_is_answered_to_nobody_else(setting: Setting) -> None:
    backend = await setting.add(answers_paths)
    inner = b"GET /mine HTTP/1.1\r\nHost: a\r\n\r\n"
    for method in (b"GET", b"DELETE"):
        assert await answer_of(setting, request(method, b"/first", inner)) == b"/first"
        await quiet(backend)
        assert backend.idle == []
        for path in (b"/theirs", b"/again"):
            assert await answer_of(setting, request(b"GET", path)) == path
        await quiet(backend)


@scenario
async def test_a_connection_with_unread_bytes_is_not_used_again(setting: Setting) -> None:
    async def two(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await head_of(reader)).split(b" ", 2)[1]
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path)
            writer.write(answer)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(answer)

    backend = await setting.add(two)
    for path in (b"/one", b"/two"):
        assert await answer_of(setting, request(b"GET", path)) == path
        while backend.idle and not backend.idle[0][0]._buffer:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
    assert backend.take_idle() is None


@scenario
async def test_a_body_that_cannot_be_read_ends_both_sides(setting: Setting) -> None:
    ended = 0

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        await head_of(reader)
        with contextlib.suppress(OSError):
            while await reader.read(100):
                pass
        ended += 1

    backend = await setting.add(waits)
    for wrong in (
        b"ZZ\r\n",
        b"\n3\r\nabc\r\n0\r\n\r\n",
        b"3;x\ny\r\nabc\r\n",
        b"3\r\nabcd\r\n",
        b"0\r\n" + b"a: b\r\n" * 102,
    ):
        with contextlib.suppress(ConnectionResetError):
            assert b" 400 " in await setting.send(CHUNKED + wrong)
    await quiet(backend)
    while ended < 5:
        await asyncio.sleep(0.01)
    assert setting.proxy._clients == set() and backend.idle == []


@scenario
async def test_chunks_are_written_anew_and_trailers_dropped(setting: Setting) -> None:
    received = b""

    async def reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await head_of(reader)
        received = await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        writer.write(b"2 ;e=1\r\nok\r\n00\r\nX: y\r\n\r\n")

    await setting.add(reads)
    answer = await setting.send(CHUNKED + b"003;name=value\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n")
    assert received == b"3\r\nabc\r\n0\r\n\r\n"
    assert answer.endswith(b"\r\n\r\n2\r\nok\r\n0\r\n\r\n")


def test_a_client_that_left_or_is_silent_holds_no_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "LEFT_S", 0.01)

    async def run(setting: Setting) -> None:
        async def thinks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await head_of(reader)
            await reader.read(-1)  # until the proxy gives up

        backend = await setting.add(thinks)
        _, writer = await setting.client()
        writer.write(LAST)
        while not backend.in_flight:
            await asyncio.sleep(0.01)
        writer.close()
        await quiet(backend)
        assert setting.backends.failed == 0, "it was not the replica's fault"
        monkeypatch.setattr(proxy_module, "IDLE_S", 0.05)
        for silent in (CHUNKED + b"5\r\nab", request(b"POST", b"/", b"x" * 10)[:-3]):
            reader, writer = await setting.client()
            writer.write(silent)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read(-1) == b""
            writer.close()
        await quiet(backend)

    scenario(run)()


@pytest.mark.parametrize("upgraded", [False, True])
def test_a_client_that_never_reads_its_answer_holds_no_replica(monkeypatch: pytest.MonkeyPatch, upgraded: bool) -> None:
    monkeypatch.setattr(proxy_module, "LEFT_S", 0.01)

    async def run(setting: Setting) -> None:
        async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await head_of(reader)
            upgrade = b"101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
            writer.write(b"HTTP/1.1 " + (upgrade if upgraded else b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
            while True:
                writer.write(b"8000\r\n" + bytes(0x8000) + b"\r\n")
                await writer.drain()

        backend = await setting.add(pours)
        reader, writer = await setting.client()
        head = b"Connection: upgrade\r\nUpgrade: x\r\n" if upgraded else b""
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n")
        for _ in range(100):  # slow is not silent
            await reader.readexactly(0x8000)
            await asyncio.sleep(0.002)
        monkeypatch.setattr(proxy_module, "IDLE_S", 0.1)
        await quiet(backend)
        assert setting.backends.failed == 0, "it was not the replica's fault"
        writer.close()

    scenario(run)()


@scenario
async def test_posts_keep_their_connection(setting: Setting) -> None:
    backend = await setting.add(said(b"yes"))
    assert await answer_of(setting, request(b"POST", b"/", b"abc")) == b"yes"
    await quiet(backend)
    assert len(backend.idle) == 1


def test_clients_are_as_many_as_descriptors_allow() -> None:
    assert proxy_module.most_clients(1024) == 384
    assert proxy_module.most_clients(1 << 20) == proxy_module.most_clients(-1) == 4096
    assert proxy_module.most_clients(64) == 1
