"""The proxy in front of replicas: HTTP/1.1, streamed both ways with bounded buffers, connections kept alive, upgrades
(websockets) passed through. Which replicas there are is told by `backends`.

A request whose replica ends before the first byte of its answer is given to another one, unless its body was too large
to be kept. Requests wait for a replica for a while where none is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket

from longboat.serving.proxy import http1
from longboat.serving.proxy.backends import Backend, Backends
from longboat.serving.proxy.bodies import PIECE, copy_body, read_within
from longboat.serving.proxy.http1 import BadMessage, RequestHead, ResponseHead

MOST_KEPT = 1 << 20
"""A body up to this size is kept until its answer begins, so that another replica can be asked."""
IDLE_S = 75.0
"""A client's connection without a request is closed after this: longer than balancers in front keep theirs. Nor may
a client be silent for longer in the middle of a head or a body, or leave its answer unread."""
HOLD_S = 60.0
"""How long a request waits for a replica: loading a model after a crash takes this long."""
CONNECT_S = 5.0  # replicas are near: one that does not answer by then is gone or hangs
MOST_TRIES = 5
"""Replicas that one request is given to before it fails: more than die at once, and no storm of requests."""
MOST_CLIENTS = 4096
"""Connections at once; two descriptors each."""
KEPT_DESCRIPTORS = 256
"""For everything but clients: idle connections, probes, locks and files."""
LEFT_S = 1.0
"""How often clients that wait for an answer are looked at: what one that has left asked for is broken off."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ReplicaFailed(Exception):
    """The replica gave no answer; `may_retry`: nothing of one has reached the client, and the body is still here."""

    def __init__(self, reason: str, *, may_retry: bool) -> None:
        super().__init__(reason)
        self.may_retry = may_retry


class Proxy:
    """Serves a listening socket."""

    def __init__(self, backends: Backends, *, hold_s: float = HOLD_S) -> None:
        self._backends = backends
        self._hold_s = hold_s
        self._clients: set[ClientStream] = set()
        self._most_clients = most_clients(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._server: asyncio.Server | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_closing = False

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=http1.MOST_HEAD, backlog=1024)
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """Nobody reads from a client whose request is being answered; so its end is looked for here. So is one that
        takes nothing of its answer: it would hold its replica, in the middle of an answer, for ever."""
        while True:
            await asyncio.sleep(LEFT_S)
            now = asyncio.get_running_loop().time()
            for client in list(self._clients):
                is_gone = client.is_busy and (client.reader.at_eof() or client.reader.exception() is not None)
                if is_gone or client.unread_since(now) < now - IDLE_S:
                    client.leave()

    async def close(self) -> None:
        """Take no new connection; those that are idle end now, the others with their answer."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            if not client.is_busy:
                client.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = ClientStream(reader, writer)
        # asyncio sets it only for sockets that were made with the number of the protocol. Without it the second part of
        # an answer waits for the client's delayed acknowledgement: 40 ms.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.add(client)
        try:
            if len(self._clients) > self._most_clients:
                await client.refuse(503, "Service Unavailable", "too many connections")
                return
            while await self._exchange(client):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass  # the client went away
        finally:
            self._clients.discard(client)
            writer.close()

    async def _exchange(self, client: ClientStream) -> bool:
        """One request and its answer. Whether the connection is kept for the next one."""
        try:
            data = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), IDLE_S)
            head = http1.parse_request(data)
        except asyncio.LimitOverrunError:
            await client.refuse(431, "Request Header Fields Too Large", "the head of the request is too large")
            return False
        except BadMessage as error:
            await client.refuse(error.status, "Bad Request", str(error))
            return False
        except asyncio.IncompleteReadError:
            return False
        client.is_busy = True
        try:
            return await self._answer(client, head) and not self._is_closing
        except BadMessage as error:
            self._backends.failed += 1
            await client.refuse(error.status, "Bad Request", str(error))
            return False
        finally:
            client.is_busy = False

    async def _answer(self, client: ClientStream, head: RequestHead) -> bool:
        kept = await client.read_small_body(head)
        tried: list[Backend] = []
        while True:
            backend = await self._backends.next(tried, self._hold_s)
            if client.has_left:
                return False
            if backend is None:
                self._backends.failed += 1
                await client.refuse(503, "Service Unavailable", "no replica is ready", retry_after_s=5)
                return False
            backend.in_flight += 1
            try:
                is_kept = await _ask(client, head, kept, backend)
                self._backends.answered += 1
                return is_kept
            except ReplicaFailed as error:
                if client.has_left:
                    return False
                tried.append(backend)
                if error.may_retry and len(tried) < MOST_TRIES:
                    continue
                self._backends.failed += 1
                if client.has_answer:
                    client.writer.transport.abort()  # a cut answer must not look like a whole one
                    return False
                await client.refuse(502, "Bad Gateway", f"the replica gave no answer: {error}")
                return False
            finally:
                backend.in_flight -= 1


class ClientStream:
    """The connection of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_busy = False
        self.has_answer = False  # some of it has been sent
        self.has_left = False  # or was sent away: nothing more is read from it or asked for it
        self.replica: asyncio.StreamWriter | None = None  # the connection that its request was given to
        self._waiting = (0, 0.0)  # bytes that it had not taken at the last look, and since when they are so many
        peer = writer.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else "unknown"

    async def read_small_body(self, head: RequestHead) -> bytes | None:
        """The whole body where it is small enough to be kept; None: it is streamed."""
        length = head.body.length
        if length is None or length > MOST_KEPT:
            return None
        if length == 0:
            return b""
        await self.go_ahead(head)
        return await read_within(self.reader, length, IDLE_S)

    def leave(self, answer: bytes | None = None) -> None:
        """Break off what is under way on both sides; `answer` is said to the client where it has heard nothing yet."""
        self.has_left = True
        if self.replica is not None:
            self.replica.transport.abort()
        if answer is not None and not self.has_answer:
            self.writer.write(answer)
            self.writer.close()
        else:
            self.writer.transport.abort()

    def unread_since(self, now: float) -> float:
        """Since when it has taken nothing of what waits for it. Nothing is added while much waits, so what it takes
        shows in what is left."""
        size = self.writer.transport.get_write_buffer_size()
        if not size or size != self._waiting[0]:
            self._waiting = (size, now)
        return self._waiting[1]

    async def go_ahead(self, head: RequestHead) -> None:
        if head.expects_continue:
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self.writer.drain()

    async def refuse(self, status: int, reason: str, text: str, *, retry_after_s: int | None = None) -> None:
        self.writer.write(http1.plain_response(status, reason, text, retry_after_s=retry_after_s))
        await self.writer.drain()


async def _ask(client: ClientStream, head: RequestHead, kept: bytes | None, backend: Backend) -> bool:
    """Give the request to a replica and its answer to the client. Raises ReplicaFailed."""
    client.has_answer = False
    idle = backend.take_idle() if kept is not None and head.upgrade is None else None
    if idle is not None:
        try:
            return await _over(client, head, kept, backend, idle)
        except ReplicaFailed as error:
            if not error.may_retry:  # it may have closed the connection at the same moment: once more over a new one
                raise
    try:
        stream = await asyncio.wait_for(
            asyncio.open_connection(backend.host, backend.port, limit=http1.MOST_HEAD), CONNECT_S
        )
    except (OSError, asyncio.TimeoutError) as error:
        raise ReplicaFailed(f"no connection: {error}", may_retry=True) from None
    return await _over(client, head, kept, backend, stream)


async def _over(client: ClientStream, head: RequestHead, kept: bytes | None, backend: Backend, stream: Stream) -> bool:
    """One exchange over a connection to the replica, which is kept for the next one or closed."""
    reader, writer = stream
    client.replica = writer
    upload: asyncio.Task[bool] | None = None
    is_reusable = False
    try:
        try:
            writer.write(http1.request_bytes(head, client.address, kept))
            if kept is None:
                upload = asyncio.ensure_future(_upload(client, head, writer))
            else:
                await writer.drain()
            answer = await _read_head(client, reader, head)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, BadMessage) as error:
            raise ReplicaFailed(_words(error), may_retry=kept is not None and not client.has_answer) from None
        if answer.status == 101:
            await _tunnel(client, head, answer, stream)
            return False
        is_uploaded = upload is None or (upload.done() and upload.result())
        has_end = answer.body.length is not None or answer.body.is_chunked
        is_kept = head.is_kept_alive and has_end and is_uploaded
        client.has_answer = True
        await _pass_answer(
            client, answer, reader, http1.response_bytes(answer, is_kept_alive=is_kept, minor=head.minor)
        )
        is_reusable = (
            answer.is_kept_alive and head.minor == 1 and is_uploaded and http1.leaves_quiet(head, answer.status)
        )
        return is_kept
    finally:
        client.replica = None
        if upload is not None and not upload.done():
            upload.cancel()
        if is_reusable:
            backend.give_back(reader, writer)
        else:
            writer.close()


def _words(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "it closed the connection"
    return str(error) or type(error).__name__


async def _read_head(client: ClientStream, reader: asyncio.StreamReader, head: RequestHead) -> ResponseHead:
    """The head of the final answer; what comes before it (103) is passed on."""
    while True:
        data = await reader.readuntil(b"\r\n\r\n")
        answer = http1.parse_response(data, head.method)
        if answer.status >= 200 or answer.status == 101:
            return answer
        if answer.status != 100 and head.minor == 1:
            client.has_answer = True
            client.writer.write(data)


async def _upload(client: ClientStream, head: RequestHead, writer: asyncio.StreamWriter) -> bool:
    """Stream the body of a request to the replica. Whether all of it was."""
    try:
        await client.go_ahead(head)
        await copy_body(client.reader, writer, head.body, IDLE_S)
    except BadMessage as error:
        client.leave(http1.plain_response(error.status, "Bad Request", str(error)))
    except (asyncio.IncompleteReadError, asyncio.TimeoutError):
        client.leave()
    except OSError:  # of the replica: how the exchange ends is told by its answer
        if client.reader.exception() is not None:
            client.leave()
    else:
        return True
    return False


async def _pass_answer(client: ClientStream, answer: ResponseHead, reader: asyncio.StreamReader, head: bytes) -> None:
    client.writer.write(head)
    length = answer.body.length
    try:
        if length is not None or answer.body.is_chunked:
            await copy_body(reader, client.writer, answer.body)
        else:
            while piece := await reader.read(PIECE):
                client.writer.write(piece)
                await client.writer.drain()
    except asyncio.IncompleteReadError:
        raise ReplicaFailed("it closed the connection in the middle of its answer", may_retry=False) from None
    except BadMessage as error:
        raise ReplicaFailed(str(error), may_retry=False) from None
    await client.writer.drain()


async def _tunnel(client: ClientStream, head: RequestHead, answer: ResponseHead, stream: Stream) -> None:
    """After an upgrade bytes go both ways until either side closes."""
    reader, writer = stream
    client.has_answer = True
    upgrade = next((value for name, value in answer.headers if name.lower() == b"upgrade"), head.upgrade)
    client.writer.write(http1.response_bytes(answer, is_kept_alive=True, minor=1, upgrade=upgrade))

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(PIECE):
                target.write(piece)
                await target.drain()

    ways = [
        asyncio.ensure_future(pass_on(client.reader, writer)),
        asyncio.ensure_future(pass_on(reader, client.writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()


def most_clients(descriptors: int) -> int:
    """Clients at once of a process that may open so many files."""
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CLIENTS
    return max(1, min(MOST_CLIENTS, (descriptors - KEPT_DESCRIPTORS) // 2))
