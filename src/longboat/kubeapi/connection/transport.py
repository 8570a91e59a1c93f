"""HTTP/1.1 transport to one API server: a pool of connections, retries where that is safe, bounds on everything.

Not here: kinds and objects (`client`), and what an error status means (`answers`).
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from longboat.kubeapi.answers import error_of, is_status
from longboat.kubeapi.connection import bodies, dialing, impersonation, retries
from longboat.kubeapi.connection.credentials import Credentials, RequestCredentials
from longboat.kubeapi.connection.retries import FailedRequest
from longboat.kubeapi.errors import BUSY, Unreachable
from longboat.kubeapi.kubeconfig import ClusterAccess

IDLE_S = 55.0
"""A connection not used for longer is not used again: load balancers forget silently, the shortest after a minute."""
MOST_IDLE = 16  # as many requests as are made side by side where pods are told or read
UPGRADE_S = 10.0  # all attempts at one upgrade together
STARTING_S = 10.0
"""A server that refuses our very first connection is waited for as long: an API server that restarts (an upgrade, a
crash) takes 5 to 10 s. No longer, because the address may be wrong, and whoever typed it waits for the answer."""
NOTHING_STARTED = ("error dialing backend", "No agent available", "no route to host", "connection refused")
"""How an API server tells that it did not reach the kubelet, so that a command has surely not been started."""
CLOCK_S = 1.0
"""Clocks that differ by less than this, and by less than an answer took, are the same clock."""
T = TypeVar("T")


class ApiRequest(NamedTuple):
    """One request. `may_repeat`: doing it twice is the same as doing it once; `left_s`: how long it may be sent yet."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    timeout_s: float = 30.0  # an API server that is well answers in seconds, also with ten thousand objects
    may_repeat: bool = True
    total_s: float = retries.TOTAL_S
    is_upgrade: bool = False
    left_s: Callable[[], float] | None = None

    def text(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"

    def allowed_s(self) -> float:
        return retries.allowed_s(self.timeout_s, self.left_s, self.text())


class Connection(http.client.HTTPConnection):
    """A connection that knows how to dial, and as whom it was opened."""

    def __init__(self, target: dialing.ServerAddress, tls: ssl.SSLContext | None, identity: RequestCredentials) -> None:
        super().__init__(target.host, target.port)
        self.target = target
        self.tls = tls
        self.identity = identity
        self.is_fresh = True
        self.idle_since = 0.0
        self.dialed: socket.socket | None = None
        self.connect_s = dialing.CONNECT_S

    def connect(self) -> None:
        self.dialed = self.sock = dialing.dial(self.target, self.tls, self.connect_s)

    def is_usable(self) -> bool:
        """Idle and silent. What can be read from an idle connection is its end."""
        if self.sock is None or time.monotonic() - self.idle_since > IDLE_S:
            return False
        try:
            return not select.select([self.sock], [], [], 0)[0]
        except (OSError, ValueError):
            return False


class _UpgradeResponse(http.client.HTTPResponse):
    """Reads no byte beyond its head: what follows a granted upgrade belongs to the other protocol."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp: Any = sock.makefile("rb", buffering=0)

    def begin(self) -> None:
        super().begin()
        if self.status != 101:
            self.fp = io.BufferedReader(self.fp)


class ResponseStream:
    """An answer that comes in pieces, for as long as both sides live. `close` may be called by another thread."""

    def __init__(self, connection: Connection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._lock = threading.Lock()
        self.is_closed = False

    def read(self, size: int = 65536) -> bytes:
        """The next bytes as soon as there are any; empty at the proper end; `Unreachable` when it broke before."""
        try:
            return self._response.read1(size)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # A response closed by another thread fails in any of these ways.
            if self.is_closed:
                return b""
            raise Unreachable(f"the connection broke: {reason_of(error)}") from error

    def close(self) -> None:
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            end(self._connection.dialed)
            self._response.close()
            self._connection.close()

    def __iter__(self) -> ResponseStream:
        return self

    def __next__(self) -> bytes:
        content = self.read()
        if not content:
            self.close()
            raise StopIteration
        return content

    def __enter__(self) -> ResponseStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def end(sock: socket.socket | None) -> None:
    """Shut the socket down; a thread that is blocked reading from it returns."""
    if sock is not None:
        try:
            # The plain one: SSLSocket.shutdown would forget the TLS state under a reader's feet.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except (OSError, ValueError):
            pass


class Transport:
    """All connections to one server. Safe for several threads."""

    def __init__(self, access: ClusterAccess, environment: Mapping[str, str]) -> None:
        self.access = access
        self.target = dialing.target_of(access, environment)
        self.credentials = Credentials(access, environment)
        self.requests = 0
        self.clock_skew_s = 0.0
        self._has_answered = False
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._tls: tuple[bytes | None, ssl.SSLContext] | None = None

    def request(self, ask: ApiRequest) -> bytes:
        """The whole answer; an `ApiError` if it is none of the good ones."""

        def read_all(connection: Connection, response: http.client.HTTPResponse) -> bytes:
            content = bodies.read_whole(response)
            self._keep(connection, response)
            return bodies.unpacked(content) if response.headers.get("Content-Encoding") == "gzip" else content

        return self._try(ask, read_all)

    def stream(self, ask: ApiRequest, *, idle_s: float | None = None) -> ResponseStream:
        """The answer as it comes. `idle_s`: silence for longer than this is a broken connection."""

        def hand_over(connection: Connection, response: http.client.HTTPResponse) -> ResponseStream:
            if connection.dialed is not None:
                connection.dialed.settimeout(idle_s)
            return ResponseStream(connection, response)

        return self._try(ask, hand_over)

    def upgrade(self, ask: ApiRequest, within_s: float | None = None) -> tuple[socket.socket, http.client.HTTPResponse]:
        """A connection that speaks something else from now on: the socket, and the answer that granted it.

        Always a new connection: what is behind it (a command) must not be started twice. It is asked for again only
        when the API server itself says that it is busy or did not reach the kubelet. What a load balancer says (502,
        504) is no such word: the command may run.
        """

        def switched(
            connection: Connection, response: http.client.HTTPResponse
        ) -> tuple[socket.socket, http.client.HTTPResponse]:
            if connection.dialed is None or response.status != 101:
                connection.close()
                raise Unreachable(f"{ask.text()}: the server did not switch protocols (status {response.status})")
            return connection.dialed, response

        timeout_s, total_s = min(ask.timeout_s, within_s or ask.timeout_s), min(UPGRADE_S, within_s or UPGRADE_S)
        once = ask._replace(may_repeat=False, is_upgrade=True, timeout_s=timeout_s, total_s=total_s)
        return self._try(once, switched)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # One request, as often as needed.

    def _try(self, ask: ApiRequest, finish: Callable[[Connection, http.client.HTTPResponse], T]) -> T:
        began, attempt, renewed = time.monotonic(), 0, False
        while True:
            attempt += 1
            connection = None
            try:
                connection = self._connection(ask)
                response = self._exchange(connection, ask)
                if response.status < 300:
                    return finish(connection, response)
                content = bodies.read_whole(response, bodies.MOST_REFUSAL)
                self._keep(connection, response)
            except (OSError, http.client.HTTPException, zlib.error) as error:
                self._after_break(ask, connection, error, attempt, began)
                continue
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            if response.status == 401 and not renewed:
                renewed = True
                if self.credentials.renew(connection.identity):
                    continue
            self._after_refusal(ask, response, content, attempt, began)

    def _exchange(self, connection: Connection, ask: ApiRequest) -> http.client.HTTPResponse:
        headers = {"Host": self.target.authority, "User-Agent": "longboat", "Accept": "application/json"}
        headers |= {"Accept-Encoding": "identity", **ask.headers}
        if connection.identity.authorization:
            headers["Authorization"] = connection.identity.authorization
        if ask.body is not None:
            headers["Content-Length"] = str(len(ask.body))
        if connection.sock is None:
            connection.connect_s = min(dialing.CONNECT_S, ask.allowed_s())
            connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(ask.allowed_s())
        with self._lock:
            self.requests += 1
        asked = time.time()
        sent = impersonation.with_user(headers, self.access.user)
        connection.request(ask.method, self.target.prefix + ask.path, ask.body, sent)
        response = connection.getresponse()
        self._has_answered = True
        self.clock_skew_s = clock_skew_s(self.clock_skew_s, response.headers.get("Date"), asked, time.time())
        return response

    def _connection(self, ask: ApiRequest) -> Connection:
        identity = self.credentials.identity()
        while True:
            with self._lock:
                # One that was kept may be dead without a sign of it: nothing for what can be sent only once.
                connection = self._idle.pop() if self._idle and ask.may_repeat else None
            if connection is None:
                connection = Connection(self.target, self._context(identity), identity)
                if ask.is_upgrade:
                    connection.response_class = _UpgradeResponse
                return connection
            if connection.identity.pair == identity.pair and connection.is_usable():
                connection.identity = identity
                connection.is_fresh = False
                return connection
            connection.close()

    def _context(self, identity: RequestCredentials) -> ssl.SSLContext | None:
        if not self.target.is_tls:
            return None
        with self._lock:
            if self._tls is None or self._tls[0] != identity.pair:
                self._tls = (identity.pair, dialing.tls_of(self.access, identity.pair))
            return self._tls[1]

    def _keep(self, connection: Connection, response: http.client.HTTPResponse) -> None:
        connection.idle_since = time.monotonic()
        if response.will_close or connection.sock is None:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _after_break(
        self, ask: ApiRequest, connection: Connection | None, error: Exception, attempt: int, began: float
    ) -> None:
        """Wait for the next attempt, or raise."""
        is_kept = connection is not None and not connection.is_fresh
        # Not `sock`: http.client forgets it when the server hangs up on a request that it has read.
        was_sent = connection is not None and connection.dialed is not None
        if connection is not None:
            connection.close()
        if isinstance(error, TimeoutError):
            self.close()  # Whatever is idle may be as dead.
        failure = FailedRequest(sent=was_sent)
        if is_kept and ask.may_repeat and not isinstance(error, TimeoutError):
            return
        is_worth = retries.is_worth_repeating(failure, may_repeat=ask.may_repeat)
        if is_worth and not isinstance(error, ssl.SSLCertVerificationError):
            is_known = self._has_answered or was_sent
            total_s = ask.total_s if is_known else min(ask.total_s, STARTING_S) if is_restart(error) else 0.0
            if self._waits(failure, ask._replace(total_s=total_s), attempt, began):
                return
        raise self._unreachable(ask, error) from error

    def _after_refusal(
        self, ask: ApiRequest, response: http.client.HTTPResponse, content: bytes, attempt: int, began: float
    ) -> None:
        failure = FailedRequest(response.status, retries.seconds(response.headers.get("Retry-After")))
        error = error_of(response.status, content, ask.text(), self.access.context, retry_after_s=failure.retry_after_s)
        if ask.is_upgrade:
            repeats = is_status(content) and (response.status in BUSY or _started_nothing(error.message))
        else:
            repeats = retries.is_worth_repeating(failure, may_repeat=ask.may_repeat)
        if isinstance(error, Unreachable) and repeats and self._waits(failure, ask, attempt, began):
            return
        raise error

    def _waits(self, failure: FailedRequest, ask: ApiRequest, attempt: int, began: float) -> bool:
        pause = retries.pause_s(failure, attempt, spent_s=time.monotonic() - began, total_s=ask.total_s)
        if pause is None:
            return False
        time.sleep(pause)
        return True

    def _unreachable(self, ask: ApiRequest, error: Exception) -> Unreachable:
        where = f"{self.access.server} (context {self.access.context!r})"
        hint = "is the cluster running, and is its address in the kubeconfig right?"
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "the kubeconfig's certificate-authority is not that of this server; get a new kubeconfig"
        elif self._has_answered:
            hint = "it answered before: try again in a moment"
        elif self.target.proxy is not None:
            hint = f"it is reached through the proxy {self.target.proxy.hostname}"
        return Unreachable(f"{where} does not answer: {reason_of(error)}", hint=hint)


def _started_nothing(message: str) -> bool:
    return any(words in message for words in NOTHING_STARTED)


def clock_skew_s(known_s: float, date: str | None, asked: float, answered: float) -> float:
    """How far the server's clock is ahead of ours, from the whole second in which it answered; pure.

    What was known stays as long as it can be true: small differences cannot be told from the time an answer takes.
    """
    try:
        second = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return known_s
    least, most = second - answered - CLOCK_S, second + 1.0 - asked + CLOCK_S
    for possible in (known_s, 0.0):
        if least <= possible <= most:
            return possible
    return (least + most) / 2


def is_restart(error: Exception) -> bool:
    """Whether a server that is not up yet may be behind it: the machine answers, and nobody listens or speaks TLS yet.

    A name that is not known, a certificate that is not trusted and a machine that is silent do not pass by waiting.
    """
    return isinstance(error, (ConnectionError, ssl.SSLEOFError))


def reason_of(error: Exception) -> str:
    """The cause in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
