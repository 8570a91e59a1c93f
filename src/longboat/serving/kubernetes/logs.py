"""Logs of a service's pods: what there is, and with `follow` what comes, of pods that come later too."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from queue import Empty, Full, Queue
from typing import Any

import msgspec

from longboat.core.errors import LongboatError, NotFound
from longboat.core.runs import LogLine
from longboat.engines.kubernetes.logs.lines import lines_of_pod
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import ResponseStream
from longboat.kubeapi.errors import ApiError, Unreachable

Object = dict[str, Any]

LOOK_S = 2.0
"""Between two looks for pods that have come: starting one takes longer."""
MOST_WAITING = 10_000
"""Lines that wait for whoever prints them; pods are not read faster than that."""


def past_lines(
    client: Client, pods: Sequence[Object], tail: int | None, notice: Callable[[str], None]
) -> Iterator[LogLine]:
    """What pods have written so far. One that has begun nothing has no log; one whose node is lost hides no other's."""
    for pod in pods:
        name = pod["metadata"]["name"]
        if started_container(pod) is None:
            continue
        try:
            with contextlib.closing(client.log(name, tail=tail)) as stream:
                yield from lines_of(name, stream, {})
        except ApiError as error:
            notice(f"the log of {name} cannot be read: {error.message}")


def started_container(pod: Object) -> Object | None:
    """The status of its container, if that was started at least once: the API server has a log of no other."""
    status: Object | None = next(iter((pod.get("status") or {}).get("containerStatuses") or ()), None)
    if status is None:
        return None
    return status if "waiting" not in (status.get("state") or {}) or status.get("lastState") else None


def follow_lines(client: Client, pods: Callable[[], Sequence[Object]], tail: int | None) -> Iterator[LogLine]:
    """Until the service is gone: `pods` raises NotFound."""
    follower = LogFollower(client, tail)
    try:
        while True:
            for pod in pods():
                follower.follow(pod)
            yield from follower.arrived(LOOK_S)
    except NotFound:
        yield from follower.arrived(0.0)
    finally:
        follower.close()


class LogFollower:
    """One thread for each container that was started, until it has ended."""

    def __init__(self, client: Client, tail: int | None) -> None:
        self._client, self._tail = client, tail
        self._lines: Queue[LogLine] = Queue(MOST_WAITING)
        self._over = threading.Event()
        self._seen: set[tuple[str, int]] = set()
        self._streams: dict[int, ResponseStream] = {}

    def follow(self, pod: Object) -> None:
        """A container that was started again is another one, with a log of its own. One that crashed between two looks
        is read while it waits to be started again."""
        status = started_container(pod)
        if status is None:
            return
        key = (str(pod["metadata"]["uid"]), int(status.get("restartCount", 0)))
        if key not in self._seen:
            self._seen.add(key)
            name = pod["metadata"]["name"]
            threading.Thread(target=self._read, args=(name,), name=f"log-{name}", daemon=True).start()

    def arrived(self, timeout_s: float) -> Iterator[LogLine]:
        with contextlib.suppress(Empty):
            yield self._lines.get(timeout=timeout_s)
            while True:
                yield self._lines.get_nowait()

    def close(self) -> None:
        self._over.set()
        for stream in list(self._streams.values()):
            stream.close()

    def _read(self, pod: str) -> None:
        """A stream that breaks is taken up where it broke: of the lines that come twice the second is passed over."""
        since: str | None = None
        seen: dict[str, int] = {}
        while not self._over.is_set():
            broke = False
            try:
                stream = self._client.log(
                    pod, follow=True, tail=self._tail if since is None else None, since_time=since
                )
                self._streams[threading.get_ident()] = stream
                for line in lines_of(pod, stream, seen):
                    self._put(line)
            except Unreachable:
                broke = True
            except LongboatError:
                return  # the pod is gone, or is not ours to read
            if not broke or self._over.wait(LOOK_S):
                return
            since = datetime.fromtimestamp(self._client.now() - LOOK_S - 1, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _put(self, line: LogLine) -> None:
        while not self._over.is_set():
            with contextlib.suppress(Full):
                self._lines.put(line, timeout=LOOK_S)
                return


def lines_of(pod: str, chunks: Iterator[bytes], seen: dict[str, int]) -> Iterator[LogLine]:
    """What the server has written; `seen`: what was read before a stream broke."""
    for line in lines_of_pod(chunks, seen=seen):
        yield msgspec.structs.replace(line, role="server", node=pod)
