"""Port-forward: one connection to a port of a pod over a WebSocket (`v4.channel.k8s.io`, which every kubelet speaks).

Each message begins with the number of a channel: 0 has the data, 1 what went wrong. The first message of each repeats
the port. The protocol knows no half-closed connection: whoever ends one direction ends both.
"""

from __future__ import annotations

import struct

from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Unreachable
from longboat.kubeapi.kinds import POD
from longboat.kubeapi.streams.websocket import WebSocketClosed, connect

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
CONNECT_S = 15.0
"""For a connection to begin: a node that does not answer is asked again by whoever wants the connection."""


class PortConnection:
    """One connection. Sending and receiving may happen in two threads."""

    def __init__(self, client: Client, pod: str, port: int, *, namespace: str | None = None) -> None:
        """Raises ApiError, or Unreachable when the pod does not take it."""
        path = client.path(POD, namespace, pod, "portforward")
        self._socket = connect(client, path, {"ports": str(port)}, [PROTOCOL], within_s=CONNECT_S)
        self._port = struct.pack("<H", port)
        self._greeted: set[int] = set()

    def send(self, content: bytes) -> None:
        self._socket.send(bytes([DATA]) + content)

    def receive(self) -> bytes:
        """What came; empty: the pod closed the connection. Raises ApiError with what the kubelet says."""
        while True:
            try:
                message = self._socket.receive()
            except WebSocketClosed:
                return b""
            if not message:
                continue
            channel, content = message[0], message[1:]
            if channel not in self._greeted:
                self._greeted.add(channel)
                if content[:2] != self._port:
                    raise Unreachable("the server forwards another port than was asked for")
                content = content[2:]
            if channel == ERROR and content:
                raise ApiError(content[:1000].decode(errors="replace").strip(), status=0)
            if channel == DATA and content:
                return content

    @property
    def is_closed(self) -> bool:
        """By this side."""
        return self._socket.is_closed

    def close(self) -> None:
        self._socket.close()
