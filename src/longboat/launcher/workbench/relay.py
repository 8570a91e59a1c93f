"""TCP relay from a port to one of 127.0.0.1, which notes when it was used last.

For servers that cannot say whether anybody looks at them. One thread, no copy of what passes beyond one block for each
direction.
"""

from __future__ import annotations

import selectors
import socket
import time

BLOCK = 1 << 16
MOST_CONNECTIONS = 512
"""A browser opens six to a server; more than these are a mistake, and wait until some have ended."""
ACCEPT_PAUSE_S = 0.1
"""After a connection that could not be taken, as with no file descriptor free: asked at once it fails again."""


class Pipe:
    """One direction of a connection: what was read of `source` and not yet written to `sink`."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.rest = b""
        self.is_ended = False  # the source has said all it will
        self.is_closed = False  # and the sink was told so


class Relay:
    """`turn` moves what there is to move and says whether anything was; call it again and again."""

    def __init__(self, port: int, target: int, address: str = "127.0.0.1") -> None:
        self._target = target
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((address, port))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._connections: dict[socket.socket, tuple[Pipe, Pipe]] = {}
        self.port = int(self._listener.getsockname()[1])

    def turn(self, timeout_s: float) -> bool:
        """Whether somebody used it."""
        is_used = False
        for key, events in self._selector.select(timeout_s):
            if key.data is None:
                is_used = self._accept() or is_used
            else:
                is_used = self._move(key.fileobj, events) or is_used  # type: ignore[arg-type]
        return is_used

    def close(self) -> None:
        for each in list(self._connections):
            self._drop(each)
        self._listener.close()
        self._selector.close()

    def _accept(self) -> bool:
        try:
            client = self._listener.accept()[0]
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            time.sleep(ACCEPT_PAUSE_S)
            return False
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 5.0)
        except OSError:
            client.close()
            return True
        pipes = (Pipe(client, server), Pipe(server, client))
        for each in (client, server):
            each.setblocking(False)
            self._connections[each] = pipes
            self._selector.register(each, selectors.EVENT_READ, True)
        self._watch_listener()
        return True

    def _watch_listener(self) -> None:
        """At the limit nobody is let in, and a listener that is ready would end every wait at once."""
        has_room = len(self._connections) < 2 * MOST_CONNECTIONS
        is_watched = self._listener in self._selector.get_map()
        if has_room and not is_watched:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        elif is_watched and not has_room:
            self._selector.unregister(self._listener)

    def _move(self, end: socket.socket, events: int) -> bool:
        pipes = self._connections.get(end)
        if pipes is None:  # dropped in this very turn
            return False
        try:
            is_used = False
            for pipe in pipes:
                if pipe.source is end and events & selectors.EVENT_READ and not pipe.rest and not pipe.is_ended:
                    pipe.rest = end.recv(BLOCK)
                    pipe.is_ended = not pipe.rest
                    is_used = bool(pipe.rest)
                if pipe.rest:
                    pipe.rest = pipe.rest[_send(pipe.sink, pipe.rest) :]
                if pipe.is_ended and not pipe.rest and not pipe.is_closed:
                    pipe.is_closed = True
                    pipe.sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(end)
            return True
        if all(pipe.is_closed for pipe in pipes):
            self._drop(end)
        else:
            self._watch(pipes)
        return is_used

    def _watch(self, pipes: tuple[Pipe, Pipe]) -> None:
        """Read where there is room, write where something is left; a full sink slows its source down."""
        for reading, writing in (pipes, pipes[::-1]):
            events = 0 if reading.rest or reading.is_ended else selectors.EVENT_READ
            events |= selectors.EVENT_WRITE if writing.rest else 0
            end = reading.source
            is_watched = end in self._selector.get_map()
            if events and is_watched:
                self._selector.modify(end, events, True)
            elif events:
                self._selector.register(end, events, True)
            elif is_watched:
                self._selector.unregister(end)

    def _drop(self, end: socket.socket) -> None:
        for each in {pipe.source for pipe in self._connections.get(end, ())}:
            self._connections.pop(each, None)
            if each in self._selector.get_map():
                self._selector.unregister(each)
            each.close()
        self._watch_listener()


def _send(sink: socket.socket, content: bytes) -> int:
    try:
        return sink.send(content)
    except (BlockingIOError, InterruptedError):
        return 0
