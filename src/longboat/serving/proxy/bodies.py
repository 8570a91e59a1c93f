"""Bodies of HTTP/1.1 messages, passed on piece by piece. Chunks are written anew, so that both sides of the proxy read
the same; trailers are dropped."""

from __future__ import annotations

import asyncio

from longboat.serving.proxy.http1 import BadMessage, Body, chunk_size

PIECE = 64 << 10
"""Bytes that are passed on at once, and that a slow reader may have waiting on either side."""
MOST_TRAILERS = 100
"""Lines after the last chunk; each is thrown away as it comes."""


async def copy_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Body, idle_s: float | None = None
) -> None:
    """A body that has an end. `idle_s`: how long whoever sends it may be silent. Raises BadMessage, TimeoutError."""
    if not body.is_chunked:
        await _copy(reader, writer, body.length or 0, idle_s)
        return
    while size := chunk_size(await _line(reader, idle_s)):
        writer.write(b"%x\r\n" % size)
        await _copy(reader, writer, size, idle_s)
        if await asyncio.wait_for(reader.readexactly(2), idle_s) != b"\r\n":
            raise BadMessage("a chunk does not end")
        writer.write(b"\r\n")
        await writer.drain()
    for _ in range(MOST_TRAILERS + 1):
        if await _line(reader, idle_s) == b"\r\n":
            break
    else:
        raise BadMessage("too many trailers")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def read_within(reader: asyncio.StreamReader, length: int, idle_s: float) -> bytes:
    """So many bytes, with no pause longer than `idle_s`."""
    data = bytearray()
    while len(data) < length:
        piece = await asyncio.wait_for(reader.read(length - len(data)), idle_s)
        if not piece:
            raise asyncio.IncompleteReadError(bytes(data), length)
        data += piece
    return bytes(data)


async def _line(reader: asyncio.StreamReader, idle_s: float | None) -> bytes:
    try:
        return await asyncio.wait_for(reader.readuntil(b"\r\n"), idle_s)
    except asyncio.LimitOverrunError:
        raise BadMessage("a line of a chunk is too long") from None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int, idle_s: float | None) -> None:
    while count:
        piece = await asyncio.wait_for(reader.read(min(PIECE, count)), idle_s)
        if not piece:
            raise asyncio.IncompleteReadError(b"", count)
        count -= len(piece)
        writer.write(piece)
        await writer.drain()
