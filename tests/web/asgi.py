"""Requests to an ASGI application in this process, as a browser would send them. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

HOST = "127.0.0.1:8080"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> Answer:
    """One request and its whole answer."""
    chunks = [chunk async for chunk in stream(app, method, target, headers, body)]
    status, given = chunks[0]
    content = b"".join(chunks[1:])
    if given.get("content-encoding") == "gzip":
        content = gzip.decompress(content)
    return Answer(status, given, content)


async def stream(
    app: Any, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> AsyncGenerator[Any, None]:
    """(status, headers), then pieces of the body as they come; a reader that leaves disconnects."""
    path, _, query = target.partition("?")
    given = {"host": HOST, "content-length": str(len(body)), **(headers or {})}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8080),
        "root_path": "",
    }
    messages: asyncio.Queue[Any] = asyncio.Queue()
    left = asyncio.Event()
    is_sent = False

    async def receive() -> dict[str, Any]:
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        await messages.put(message)

    async def work() -> None:
        try:
            await app(scope, receive, send)
        finally:
            await messages.put(None)

    task = asyncio.ensure_future(work())
    try:
        while (message := await messages.get()) is not None:
            if message["type"] == "http.response.start":
                names = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
                yield message["status"], names
            elif message.get("body"):
                yield message["body"]
        await task
    finally:
        left.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
