"""A proxy before a cluster's API that misbehaves on demand: cut, slow, frozen, answering errors, dropping watches.

It lives in the test's own process. Clients use its kubeconfig: the certificates are the API's own, and whoever they are
to the proxy they are to the API, because the API trusts the proxy's word for it (as it does with any front proxy).
Speaks HTTP/1.1; exec, port-forward and other upgraded connections pass. Not here: faults of components (`faults`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.certificates import write_kubeconfig
from testbed.clusters import Cluster
from testbed.messages import Answer, Head, Request, Seen, Share, identity, read_head

HEAD_LIMIT = 1 << 20
BLOCK = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class Link:
    """One connection, to a client or to the API."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.closed = asyncio.ensure_future(self._wait_closed())

    async def _wait_closed(self) -> None:
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def abort(self) -> None:
        """End it with a reset, as a broken network does."""
        with contextlib.suppress(OSError, AttributeError):
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()


def abort_all(links: set[Link]) -> None:
    for link in list(links):
        link.abort()


class ApiProxy:
    """Starts to listen when made. Every method may be called from any thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seen: list[Seen] = []
        self.refused = 0  # connections, while it was cut
        self._delay_s = 0.0
        self._is_cut = False
        self._watch_s: float | None = None
        self._answers: list[Answer] = []
        self._links: set[Link] = set()
        self._watches: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server_side = self._context(ssl.PROTOCOL_TLS_SERVER, "apiserver")
        self._named = self._context(ssl.PROTOCOL_TLS_CLIENT, "front-proxy-client")
        self._unnamed = self._context(ssl.PROTOCOL_TLS_CLIENT, None)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.kubeconfig = self.write_kubeconfig()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._run, name="api-proxy", daemon=True)
        self._thread.start()

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    def write_kubeconfig(self, certificate: str = "admin") -> Path:
        file = self.cluster.folder / f"proxy-{self.port}.kubeconfig"
        return write_kubeconfig(self.cluster, certificate, file, server=self.server)

    def _context(self, protocol: int, certificate: str | None) -> ssl.SSLContext:
        pki = self.cluster.pki
        context = ssl.SSLContext(protocol)
        context.load_verify_locations(str(pki / "ca.crt"))
        if certificate:
            context.load_cert_chain(str(pki / f"{certificate}.crt"), str(pki / f"{certificate}.key"))
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context

    # What tests call.

    def cut(self) -> None:
        """Reset every connection, and each new one at once."""
        self._is_cut = True
        self._do(lambda: abort_all(self._links))

    def show_certificate(self, certificate: str, key: str) -> None:
        """To every new connection, in place of the API's own."""
        self._server_side.load_cert_chain(certificate, key)

    def freeze(self) -> None:
        """Half-open: connections stay and new ones are accepted, and nothing ever comes back."""
        self._do(self._flowing.clear)

    def delay(self, seconds: float) -> None:
        """Every request waits so long before it is passed on."""
        self._delay_s = seconds

    def answer(
        self,
        status: int,
        *,
        share: float = 1.0,
        retry_after: int | None = None,
        only: Callable[[Request], bool] = lambda request: True,
    ) -> None:
        """Answer this share of the requests with an error, evenly spread; several kinds add up."""
        self._answers.append(Answer(status, Share(share), retry_after, only))

    def drop_watches(self) -> None:
        """Reset every connection that carries a watch now."""
        self._do(lambda: abort_all(self._watches))

    def drop_watches_every(self, seconds: float) -> None:
        """Reset each watch so long after it began, those that run already included."""
        self._watch_s = seconds

        def limit_all() -> None:
            for link in self._watches:
                self._end_later(link)

        self._do(limit_all)

    def restore(self) -> None:
        """Behave again. What was frozen goes on where it stopped."""
        self._is_cut, self._delay_s, self._watch_s = False, 0.0, None
        self._answers.clear()
        self._do(self._flowing.set)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self.kubeconfig.unlink(missing_ok=True)

    def _do(self, work: Callable[[], Any]) -> None:
        """In the proxy's thread, finished when this returns."""

        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=10)

    # Everything below runs in the proxy's thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._spawn(self._accept())
        try:
            self._loop.run_forever()
        finally:
            abort_all(self._links)
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._listener.close()
            self._loop.close()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end_later(self, link: Link) -> None:
        if self._watch_s is not None:
            self._loop.call_later(self._watch_s, lambda: link.abort() if link in self._watches else None)

    async def _accept(self) -> None:
        while True:
            incoming, _ = await self._loop.sock_accept(self._listener)
            incoming.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._is_cut:
                self.refused += 1
                incoming.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                incoming.close()
            else:
                self._spawn(self._serve(incoming))

    async def _serve(self, incoming: socket.socket) -> None:
        try:
            await self._flowing.wait()
            client = await self._wrap(incoming)
        except (OSError, asyncio.CancelledError):
            incoming.close()
            return
        with self._held(client):
            upstream: Link | None = None
            try:
                upstream = await self._dial(client)
                with self._held(upstream):
                    while await self._pass_one(client, upstream):
                        pass
            except (OSError, asyncio.IncompleteReadError, ValueError):
                client.abort()

    async def _wrap(self, incoming: socket.socket) -> Link:
        reader = asyncio.StreamReader(limit=HEAD_LIMIT)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, incoming, ssl=self._server_side)
        return Link(reader, asyncio.StreamWriter(transport, protocol, reader, self._loop))

    async def _dial(self, client: Link) -> Link:
        named = bool(identity(client.writer.get_extra_info("peercert")))
        return Link(
            *await asyncio.open_connection(
                self.cluster.address, self.cluster.ports["apiserver"], limit=HEAD_LIMIT,
                ssl=self._named if named else self._unnamed,
            )
        )  # fmt: skip

    @contextlib.contextmanager
    def _held(self, link: Link) -> Iterator[None]:
        self._links.add(link)
        try:
            yield
        finally:
            self._links.discard(link)
            self._tasks.add(link.closed)
            link.closed.add_done_callback(self._tasks.discard)
            self._watches.discard(link)
            link.writer.close()

    async def _pass_one(self, client: Link, upstream: Link) -> bool:
        """One request and its answer; False when the connection has ended."""
        head = await read_head(client.reader)
        if head is None:
            return False
        method, target, _ = head.first.split(" ", 2)
        request = Request(method, target)
        await asyncio.sleep(self._delay_s)
        await self._flowing.wait()
        chosen = [answer for answer in self._answers if answer.concerns(request) and answer.share.is_chosen()]
        if chosen:
            self.seen.append(Seen(request, str(chosen[0].status)))
            await self._body(head, client.reader, None)
            await self._write(client, chosen[0].text(request))
            return True
        self.seen.append(Seen(request, "passed"))
        who = identity(client.writer.get_extra_info("peercert"))
        await self._write(upstream, head.replaced(who).text())
        await self._body(head, client.reader, upstream)
        if request.is_watch:
            self._watches.add(client)
            self._end_later(client)
        try:
            return await self._while_there(client, self._answer_of(request, client, upstream))
        finally:
            self._watches.discard(client)

    async def _while_there(self, client: Link, work: Any) -> bool:
        """Nobody listens any more: a watch would go on for minutes."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, client.closed}, return_when=asyncio.FIRST_COMPLETED)
            return bool(task.result()) if task.done() else False
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _answer_of(self, request: Request, client: Link, upstream: Link) -> bool:
        head = await read_head(upstream.reader)
        if head is None:
            raise ConnectionResetError("the API closed the connection")
        await self._write(client, head.text())
        status = int(head.first.split(" ")[1])
        if status == 101:
            both = [self._pump(client.reader, upstream), self._pump(upstream.reader, client)]
            await asyncio.gather(*both)
            return False
        if request.method == "HEAD" or status in (204, 304) or status < 200:
            return status >= 200 or await self._answer_of(request, client, upstream)
        if not head.get("transfer-encoding") and not head.get("content-length"):
            await self._pump(upstream.reader, client)
            return False
        await self._body(head, upstream.reader, client)
        return head.get("connection").lower() != "close"

    async def _body(self, head: Head, source: asyncio.StreamReader, target: Link | None) -> None:
        if "chunked" in head.get("transfer-encoding").lower():
            size = -1
            while size != 0:
                line = await source.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                await self._write(target, line + await source.readexactly(size + 2 if size else 0))
            while (line := await source.readuntil(b"\r\n")) != b"\r\n":
                await self._write(target, line)
            await self._write(target, line)
        left = int(head.get("content-length") or 0)
        while left > 0:
            block = await source.readexactly(min(left, BLOCK))
            left -= len(block)
            await self._write(target, block)

    async def _pump(self, source: asyncio.StreamReader, target: Link) -> None:
        while block := await source.read(BLOCK):
            await self._write(target, block)
        if target.writer.can_write_eof():
            target.writer.write_eof()
        else:
            target.writer.close()

    async def _write(self, target: Link | None, content: bytes) -> None:
        await self._flowing.wait()
        if target is not None:
            target.writer.write(content)
            await target.writer.drain()
