"""Exec: a command in a pod's container over a WebSocket, with input, output, exit code and a terminal.

The server speaks `v5.channel.k8s.io` (Kubernetes 1.30 and newer) or `v4.channel.k8s.io`. Each message begins with the
number of a channel. Only v5 can say that the input has ended: with v4, input is possible at a terminal, where the user
ends it by a key, and for a command that knows by itself where its input ends. A command outlives a broken connection:
nobody in the pod is told that we are gone.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import threading
import time
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, Unreachable
from longboat.kubeapi.kinds import POD
from longboat.kubeapi.streams import terminal
from longboat.kubeapi.streams.websocket import WebSocket, WebSocketClosed, connect

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
END = 255
BLOCK = 1 << 15
MOST_STATUS = 1 << 20
"""Of what a server says about how a command ended. It is a few hundred bytes, with a message of the runtime's in it."""


class BoundedOutput(io.BytesIO):
    """The first bytes of what a command writes: it runs in somebody else's image, and may write without end."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.is_cut = False

    def write(self, content: Any, /) -> int:
        room = self._most - self.tell()
        self.is_cut = self.is_cut or len(content) > room
        super().write(content[:room])
        return len(content)


class ContainerProcess(NamedTuple):
    """A container: what is run there is in `command`; without one, the container's own process is attached to."""

    pod: str
    namespace: str | None = None
    container: str = "main"
    command: tuple[str, ...] = ()


class Session:
    """One command, as it runs. Input and output may be handled in two threads."""

    def __init__(
        self,
        client: Client,
        place: ContainerProcess,
        *,
        stdin: bool,
        tty: bool,
        protocols: Sequence[str] = (V5, V4),
        needs_end: bool = True,
        connect_s: float | None = None,
    ) -> None:
        """`needs_end`: the command reads its input until that ends. `connect_s` bounds the wait for its start."""
        path = client.path(POD, place.namespace, place.pod, "exec")
        query = {
            "container": place.container,
            "command": list(place.command),
            "stdin": "true" if stdin else "",
            "stdout": "true",
            "stderr": "" if tty else "true",
            "tty": "true" if tty else "",
        }
        must_end = stdin and not tty and needs_end
        try:
            self.socket: WebSocket = connect(client, path, query, [V5] if must_end else protocols, within_s=connect_s)
        except Forbidden as error:
            if error.reason or not must_end:  # RBAC or admission; a server that refuses the protocol gives no reason
                raise
            raise ApiError(
                "the API server cannot pass on the end of a command's input", status=403, hint="Kubernetes 1.30 can"
            ) from error
        self._status = b""

    def send(self, content: bytes) -> None:
        """Input for the command."""
        self.socket.send(bytes([STDIN]) + content)

    def end_input(self) -> None:
        """The command reads end-of-file. Does nothing with v4."""
        if self.socket.protocol == V5:
            self.socket.send(bytes([END, STDIN]))

    def resize(self, columns: int, lines: int) -> None:
        self.socket.send(bytes([RESIZE]) + json.dumps({"Width": columns, "Height": lines}).encode())

    def receive(self, timeout_s: float | None = None) -> tuple[int, bytes] | None:
        """(STDOUT or STDERR, content), or None when nothing came in time. `WebSocketClosed` at the end: see
        `exit_code`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            message = self.socket.receive(left)
            if message is None:
                return None
            channel, content = message[0] if message else END, message[1:]
            if channel == STATUS:
                self._status = (self._status + content)[:MOST_STATUS]
            elif channel in (STDOUT, STDERR) and content:
                return channel, content

    def exit_code(self) -> int:
        """Exit code of the command, after `WebSocketClosed`. Raises ApiError if it never ran."""
        return exit_code_in(self._status)

    def close(self) -> None:
        self.socket.close()


def exit_code_in(status: bytes) -> int:
    """What the status channel said in the end."""
    try:
        parsed: dict[str, Any] = json.loads(status)
    except (ValueError, RecursionError):
        raise Unreachable("the connection ended before the command did") from None
    if parsed.get("status") == "Success":
        return 0
    if parsed.get("reason") == "NonZeroExitCode":
        for cause in (parsed.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
    message = str(parsed.get("message") or "the command could not be started")
    hint = "the container's image has no such program" if "executable file not found" in message else None
    raise ApiError(message, status=int(parsed.get("code") or 0), reason=str(parsed.get("reason") or ""), hint=hint)


class _Pump:
    """Passes input on in a thread of its own, until it ends or the command does."""

    def __init__(self, session: Session, source: BinaryIO | bytes) -> None:
        self.session = session
        self.source = source
        self.trouble: Exception | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if isinstance(self.source, bytes):
                for start in range(0, len(self.source), BLOCK):
                    self.session.send(self.source[start : start + BLOCK])
            else:
                while block := self._read(self.source):
                    self.session.send(block)
            self.session.end_input()
        except Unreachable:
            pass  # The reader of the output meets it too, and says more.
        except Exception as error:  # the command would wait for its input for ever
            self.trouble = error
            self.session.close()

    def _read(self, source: BinaryIO) -> bytes:
        """Never blocked in a read: a key typed after the end belongs to the next program."""
        try:
            number = source.fileno()
        except (OSError, ValueError, AttributeError):
            number = -1
        if number >= 0:
            poller = select.poll()
            poller.register(number, select.POLLIN)
            poller.register(self._wake_read, select.POLLIN)
            if any(descriptor == self._wake_read for descriptor, _ in poller.poll()):
                return b""
        read: Any = getattr(source, "read1", source.read)
        return bytes(read(BLOCK) or b"")

    def stop(self) -> None:
        os.close(self._wake_write)
        # One that is stuck in its source (a pipe object of ours, say) is left behind: it holds nothing.
        self._thread.join(1.0)
        if not self._thread.is_alive():
            os.close(self._wake_read)


def run_in_pod(
    client: Client,
    pod: str,
    command: Sequence[str],
    *,
    namespace: str | None = None,
    container: str = "main",
    stdin: BinaryIO | bytes | None = None,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
    tty: bool = False,
    timeout_s: float | None = None,
    connect_s: float | None = None,
) -> int:
    """Run a command in a container and return its exit code. Output that nobody wants (None) is thrown away.

    With `tty` the command gets a terminal; if `stdin` is one too it is switched to raw mode and its size is passed on.
    `Unreachable` when the connection breaks or `timeout_s` is over; the command may still run then.
    """
    place = ContainerProcess(pod, namespace, container, tuple(command))
    if not place.command:
        raise ValueError("no command")
    session = Session(client, place, stdin=stdin is not None, tty=tty, connect_s=connect_s)
    return relay_streams(session, stdin, stdout, stderr, timeout_s=timeout_s)


def relay_streams(
    session: Session,
    stdin: BinaryIO | bytes | None,
    stdout: BinaryIO | None,
    stderr: BinaryIO | None,
    *,
    timeout_s: float | None = None,
) -> int:
    """Input and output between us and the command until it ends; its exit code."""
    with contextlib.ExitStack() as last:
        last.callback(session.close)
        if stdin is not None and not isinstance(stdin, bytes) and stdin.isatty():
            _use_terminal(session, stdin.fileno(), last)
        pump = _Pump(session, stdin) if stdin is not None else None
        if pump is not None:
            last.callback(pump.stop)
        try:
            _show(session, {STDOUT: stdout, STDERR: stderr}, timeout_s)
        except WebSocketClosed:
            return session.exit_code()
        except Unreachable:
            if pump is not None and pump.trouble is not None:
                raise Unreachable(f"the input cannot be read: {pump.trouble}") from pump.trouble
            raise
    raise AssertionError("only an exception ends the output")


def _use_terminal(session: Session, number: int, last: contextlib.ExitStack) -> None:
    def tell_size() -> None:
        with contextlib.suppress(OSError, Unreachable):
            session.resize(*terminal.size_of(number))

    last.enter_context(terminal.raw(number))
    last.enter_context(terminal.resized(tell_size))
    tell_size()


def _show(session: Session, sinks: dict[int, BinaryIO | None], timeout_s: float | None) -> None:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        message = session.receive(left) if left is None or left > 0 else None
        if message is None:
            raise Unreachable(f"the command did not end within {timeout_s} s")
        sink = sinks[message[0]]
        if sink is not None:
            sink.write(message[1])
            sink.flush()
