"""The log files of a living pod's launcher, streamed by exec (`launcher --logs`): whole, whatever the kubelet rotated.

What comes is in the form of the pod's own log. The launcher of an ended node stays for a bounded time until those who
read here have everything. Not here: when it is worth an exec (`pod_reader`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

from longboat.engines.kubernetes.manifests.pod_template import CONTAINER, LAUNCHER
from longboat.engines.kubernetes.manifests.volumes import NODE
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, Unreachable
from longboat.kubeapi.refusals import SYNC_S
from longboat.kubeapi.streams.exec import STDOUT, ContainerProcess, Session
from longboat.kubeapi.streams.websocket import WebSocketClosed

NOT_THERE = 202  # `pod.log_feed` found no folder: the launcher has not begun
KILLED = (137, 143)  # with its pod
SILENCE_S = 30.0
"""The launcher's side says something every 5 s; after six such pauses the connection is dead."""


class LauncherLogs:
    """Log files of one pod's launcher."""

    def __init__(self, client: Client, namespace: str, pod: str) -> None:
        self._is_off = False  # without the right to exec, or with an older launcher
        self._rests_until = 0.0  # after a first refusal
        self._client = client
        self._namespace = namespace
        self._pod = pod
        self._session: Session | None = None
        self._was_allowed = False
        self._is_closed = False

    @property
    def is_usable(self) -> bool:
        return not self._is_off and time.monotonic() >= self._rests_until

    def read(self, seen: Mapping[str, int], *, follow: bool) -> Iterator[bytes]:
        """The log from the lines on that are not in `seen`; with `follow` until the node has ended. Raises ApiError."""
        words = ["--logs", NODE, json.dumps(dict(seen)), *(["follow"] if follow else [])]
        place = ContainerProcess(self._pod, self._namespace, CONTAINER, ("python3", "-I", "-S", LAUNCHER, *words))
        try:
            session = self._session = Session(self._client, place, stdin=False, tty=False)
            self._was_allowed = True
        except Forbidden:
            self._note_refusal()
            raise
        try:
            yield from self._output(session)
        finally:
            session.close()

    def _note_refusal(self) -> None:
        """An API server that has just restarted refuses everybody for a moment. Who was never allowed asks once more
        after that; until then the pod's log must do."""
        if not self._was_allowed:
            self._is_off = self._rests_until > 0.0
            self._rests_until = time.monotonic() + SYNC_S

    def _output(self, session: Session) -> Iterator[bytes]:
        try:
            while not self._is_closed:
                message = session.receive(SILENCE_S)
                if message is None:
                    raise Unreachable(f"nothing was heard from {self._pod} for {SILENCE_S:.0f} s")
                if message[0] == STDOUT:
                    yield message[1]
        except WebSocketClosed:
            code = session.exit_code()
            if code != 0 and not self._is_closed:
                self._is_off = code not in (NOT_THERE, *KILLED)  # any other code: it does not know `--logs`
                raise ApiError(f"the launcher of {self._pod} cannot show its logs (exit code {code})") from None

    def close(self) -> None:
        """End a reading from another thread."""
        self._is_closed = True
        if self._session is not None:
            self._session.close()
