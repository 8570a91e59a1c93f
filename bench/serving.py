"""Requests per second and their 99th percentile through our proxy, against the same server asked directly.

The server's handler waits 10 ms, as a small model does; clients keep their connections. All of it shares this machine's
cores. `measure()` alternates both ways, so that a change of load meets both. Not a test: figures depend on the machine.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import statistics
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from longboat.serving.proxy.backends import Backend, Backends
from longboat.serving.proxy.server import Proxy

HANDLER_S = 0.01
CLIENTS = 8
SECONDS = 4.0
REPEATS = 3


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(HANDLER_S)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def serve(port: int) -> None:
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def proxy(port: int, server: int) -> None:
    async def run() -> None:
        backends = Backends()
        await Proxy(backends).start(socket.create_server(("127.0.0.1", port)))
        backends.set_ready([Backend("server", 1, "127.0.0.1", server)])
        await asyncio.Event().wait()

    asyncio.run(run())


async def ask(port: int, until: float, times: list[float]) -> None:
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 256\r\n\r\n" + b"x" * 256
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        begun = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(256)
        times.append(time.perf_counter() - begun)
    writer.close()


def load(port: int) -> tuple[float, float]:
    """Requests per second, and the 99th percentile in milliseconds."""
    times: list[float] = []

    async def run() -> None:
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(ask(port, until, times) for _ in range(CLIENTS)))

    asyncio.run(run())
    return len(times) / SECONDS, statistics.quantiles(times, n=100)[98] * 1000


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def measure() -> dict[str, float]:
    server, front = free_port(), free_port()
    processes = [
        multiprocessing.Process(target=serve, args=(server,), daemon=True),
        multiprocessing.Process(target=proxy, args=(front, server), daemon=True),
    ]
    for process in processes:
        process.start()
    try:
        for port in (server, front):
            wait_for(port)
        direct, through = [], []
        for _ in range(REPEATS):
            direct.append(load(server))
            through.append(load(front))
    finally:
        for process in processes:
            process.kill()
    rates = [statistics.median(each[0] for each in figures) for figures in (direct, through)]
    tails = [statistics.median(each[1] for each in figures) for figures in (direct, through)]
    return {
        "direct_requests_s": rates[0],
        "proxy_requests_s": rates[1],
        "proxy_vs_direct": rates[1] / rates[0],
        "direct_p99_ms": tails[0],
        "proxy_p99_ms": tails[1],
    }


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
