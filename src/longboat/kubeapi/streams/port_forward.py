"""Port-forward: a port of this machine that leads to a port of a pod, through the API server.

Every local connection gets a WebSocket of its own (`v4.channel.k8s.io`: channel 0 carries data, channel 1 errors). This
protocol cannot close one direction only: a client that ends its sending keeps receiving for as long as the pod talks,
and the pod is not told.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from longboat.core.errors import EngineError
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import end
from longboat.kubeapi.errors import ApiError, Unreachable
from longboat.kubeapi.kinds import POD
from longboat.kubeapi.streams.websocket import WebSocket, WebSocketClosed, connect

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
BLOCK = 1 << 15
BUSY_S = 0.2
"""Between two tries to serve a connection where descriptors or threads are short."""
MOST_WORDS = 1 << 16  # of what a pod's side complains of: a sentence
QUIET_S = 30.0
"""A client that sends no more and hears nothing for so long is taken to be gone."""


class PortForward:
    """Listens on 127.0.0.1 at `port` until closed. `trouble` is the last thing that went wrong, for whoever asks."""

    def __init__(
        self,
        client: Client,
        pod: str,
        port: int,
        *,
        namespace: str | None = None,
        local: int = 0,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        if not 0 < port < 65536:
            raise ValueError(f"not a port: {port}")
        self.client = client
        self.pod = pod
        self.remote_port = port
        self.trouble: str | None = None
        self._on_trouble = on_trouble
        self._path = client.path(POD, namespace, pod, "portforward")
        # Not tried out: whatever listens in the pod may take a first connection for the only one.
        phase = client.get(POD, pod, namespace=namespace).get("status", {}).get("phase")
        if phase != "Running":
            raise ApiError(f"pod {pod} does not run: its phase is {phase}")
        try:
            self._listener = socket.create_server(("127.0.0.1", local), backlog=64)
        except OSError as error:
            raise ApiError(f"port {local} of this machine cannot be used: {error.strerror or error}") from error
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[_Link] = set()
        self.is_closed = False
        threading.Thread(target=self._accept, name=f"forward-{port}", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            held = list(self._open)
        end(self._listener)
        self._listener.close()
        for link in held:
            link.close()

    def __enter__(self) -> PortForward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self.is_closed:
            try:
                local, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(local,), name="forwarded", daemon=True).start()
            except (OSError, RuntimeError) as error:
                if self.is_closed:
                    return
                # No descriptor or no thread is left: said, and tried again when some may be free.
                self._complain(f"a connection to port {self.port} cannot be served now: {error}")
                time.sleep(BUSY_S)

    def _serve(self, local: socket.socket) -> None:
        with local:
            try:
                remote = connect(self.client, self._path, {"ports": self.remote_port}, [PROTOCOL])
            except EngineError as error:  # credentials that cannot be had, too
                self._complain(error.message)
                return
            link = _Link(local, remote)
            with self._lock:
                if self.is_closed:
                    remote.close()
                    return
                self._open.add(link)
            try:
                complaint = link.run()
                if complaint:
                    self._complain(complaint)
            finally:
                with self._lock:
                    self._open.discard(link)

    def _complain(self, text: str) -> None:
        self.trouble = text
        if self._on_trouble is not None:
            self._on_trouble(text)


class _Link:
    """One local connection and its way to the pod."""

    def __init__(self, local: socket.socket, remote: WebSocket) -> None:
        self.local = local
        self.remote = remote
        self.is_one_way = False

    def run(self) -> str | None:
        """Until either side ends; what the pod's side complained of."""
        sender = threading.Thread(target=self._send, name="forwarded-up", daemon=True)
        sender.start()
        complaint = b""
        begun = {DATA: False, ERROR: False}
        try:
            while True:
                message = self.remote.receive(QUIET_S)
                if message is None and self.is_one_way:
                    return self.complaint(complaint)
                channel, content = (message[0], message[1:]) if message else (-1, b"")
                if channel not in begun:
                    continue
                if not begun[channel]:
                    begun[channel], content = True, content[2:]  # first the port's number
                if channel == ERROR:
                    complaint = (complaint + content)[:MOST_WORDS]
                elif content:
                    self.local.sendall(content)
        except (WebSocketClosed, Unreachable, OSError):
            pass
        finally:
            self.close()
            sender.join(5.0)
        return self.complaint(complaint)

    def complaint(self, said: bytes) -> str | None:
        return said.decode(errors="replace").strip() or None

    def _send(self) -> None:
        with contextlib.suppress(OSError, Unreachable):
            while block := self.local.recv(BLOCK):
                self.remote.send(bytes([DATA]) + block)
            self.is_one_way = True
            return
        self.close()

    def close(self) -> None:
        self.remote.close()
        end(self.local)
