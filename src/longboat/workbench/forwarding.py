"""A port of this machine that leads to a port of a run's pod. It outlasts lost connections: each one dials anew.

A connection that the browser makes while the cluster cannot be reached (a laptop that slept, an API server that
restarts) waits for it; one that breaks is closed, and the page makes a new one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

from longboat.core.errors import LongboatError
from longboat.engines.kubernetes.exec.files import pod_of
from longboat.engines.kubernetes.observe.observe import observe
from longboat.kubeapi.client import Client
from longboat.kubeapi.streams.port_forward import PortConnection
from longboat.workbench.ports import listen, listen_near, taken

RETRY_S = 30.0
"""For so long a connection waits for the cluster: an API server that restarts is back by then."""
FIRST_PAUSE_S, PAUSE_S = 0.2, 2.0  # a page that loads is not kept waiting; an API server that is away is asked gently
BLOCK = 1 << 15  # as much as the kubelet sends at once
MOST_CONNECTIONS = 64
"""A page opens a dozen; more wait their turn, so that nothing here floods an API server."""
ACCEPT_PAUSE_S = 0.5
"""After a connection that could not be taken, as with no file descriptor free: some are free again when others end."""


class PortForward:
    """`with PortForward(client, run, 8888) as forward:`; `forward.port` is the port here."""

    keeps_pod = True  # the pod of one connection is that of the next, until it cannot be reached

    def __init__(
        self,
        client: Client,
        run: str,
        target: int,
        *,
        port: int | None = None,
        usual: int = 0,
        pod: tuple[str, str] | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`port`: this one or none (UsageError); else `usual` where nobody has it. `report` is told of lost ways.
        `pod`: of the run, where it was just seen."""
        self._client, self._run, self._target, self._report = client, run, target, report
        try:
            self._listener = listen(port) if port else listen_near(usual)
        except OSError as error:
            raise taken(port or usual, error) from error
        self.port = int(self._listener.getsockname()[1])
        self._pod: tuple[str | None, str] | None = pod
        self._is_lost = False
        self._over = threading.Event()
        self._room = threading.Semaphore(MOST_CONNECTIONS)
        self._open: set[PortConnection] = set()
        self._lock = threading.Lock()

    def check(self) -> None:
        """Connect once. Raises ApiError where it is not allowed: waiting does not change that."""
        namespace, pod = self._pod or self._find()
        PortConnection(self._client, pod, self._target, namespace=namespace).close()
        self._note_pod(namespace, pod)

    def __enter__(self) -> PortForward:
        threading.Thread(target=self._accept, name="port-forward", daemon=True).start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else the thread stays in accept
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            self._room.acquire()  # before a connection is taken: the others wait in the kernel, not in threads
            try:
                sock = self._listener.accept()[0]
            except OSError:  # also that of a listener that is closed, and then it is over
                self._room.release()
                self._over.wait(ACCEPT_PAUSE_S)
                continue
            threading.Thread(target=self._serve, args=(sock,), name="port-forward", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            self._pass_on(sock)
        finally:
            self._room.release()

    def _pass_on(self, sock: socket.socket) -> None:
        with contextlib.closing(sock):
            connection = self._dial()
            if connection is None:
                return
            with self._lock:
                self._open.add(connection)
            back = threading.Thread(target=self._answers, args=(sock, connection), daemon=True)
            back.start()
            with contextlib.suppress(OSError, LongboatError):
                while block := sock.recv(BLOCK):
                    connection.send(block)
            connection.close()
            back.join()
            with self._lock:
                self._open.discard(connection)

    def _answers(self, sock: socket.socket, connection: PortConnection) -> None:
        try:
            while block := connection.receive():
                sock.sendall(block)
        except LongboatError as error:
            if not connection.is_closed:
                self._note_lost(error)
        except OSError:
            pass  # the browser went away
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    def _dial(self) -> PortConnection | None:
        """A connection, however long the cluster takes within reason; None: it does not come back."""
        deadline, pause = time.monotonic() + RETRY_S, FIRST_PAUSE_S
        while not self._over.is_set():
            try:
                namespace, pod = self._pod or self._find()
                connection = PortConnection(self._client, pod, self._target, namespace=namespace)
                self._note_pod(namespace, pod)
                self._note_reached()
                return connection
            except LongboatError as error:
                self._pod = None  # a new attempt has a pod of another name
                self._note_lost(error)
            if time.monotonic() > deadline:
                return None
            self._over.wait(pause)
            pause = min(pause * 2, PAUSE_S)
        return None

    def _find(self) -> tuple[str | None, str]:
        snapshot = observe(self._client, self._run, self._client.now())
        return snapshot.record.namespace, pod_of(snapshot, node=None).name

    def _note_pod(self, namespace: str | None, pod: str) -> None:
        self._pod = (namespace, pod) if self.keeps_pod else None

    def _note_lost(self, error: LongboatError) -> None:
        if not self._is_lost and not self._over.is_set():
            self._is_lost = True
            self._report(f"the way to {self._run} is lost: {error.message}; it is tried again")

    def _note_reached(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._report(f"{self._run} is reached again")
