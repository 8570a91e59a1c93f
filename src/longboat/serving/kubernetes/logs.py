"""Logs of a service's pods: what there is, and with `follow` what comes, of pods that come later too."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Empty, Full, Queue
from typing import Any

import msgspec

from longboat.core.errors import LongboatError, NotFound
from longboat.core.runs import LogLine
from longboat.core.times import format_time
from longboat.engines.kubernetes.logs.lines import lines_of_pod
from longboat.engines.kubernetes.observe.termination import container_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import ResponseStream
from longboat.kubeapi.errors import ApiError, Forbidden

Object = dict[str, Any]

LOOK_S = 2.0
"""Between two looks for pods that have come: starting one takes longer."""
OVERLAP_S = 2.0
"""A log is taken up so long before its last line: the API server takes whole seconds."""
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


def started_container(pod: Object) -> Mapping[str, Any] | None:
    """The status of its container, if that was started at least once: the API server has a log of no other."""
    status = container_of(pod)
    if status is None:
        return None
    return status if "waiting" not in (status.get("state") or {}) or status.get("lastState") else None


def follow_lines(client: Client, pods: Callable[[], Sequence[Object]], tail: int | None) -> Iterator[LogLine]:
    """Until the service is gone: `pods` raises NotFound."""
    follower, due = LogFollower(client, tail), 0.0
    try:
        while True:
            if time.monotonic() >= due:  # however often lines come
                for pod in pods():
                    follower.follow(pod)
                due = time.monotonic() + LOOK_S
            yield from follower.arrived(max(0.0, due - time.monotonic()))
    except NotFound:
        yield from follower.arrived(0.0)
    finally:
        follower.close()


class FollowedLog:
    """How far the log of a container was read."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.time = 0.0  # of the last line, or when it was first opened
        self.is_at_work = False  # a thread reads it
        self.has_ended = False  # the server has ended the last stream properly, as it also does where a node is lost
        self.is_refused = False


class LogFollower:
    """One thread for each container that was started, until it has ended."""

    def __init__(self, client: Client, tail: int | None) -> None:
        self._client, self._tail = client, tail
        self._lines: Queue[LogLine] = Queue(MOST_WAITING)
        self._over = threading.Event()
        self._logs: dict[tuple[str, int], FollowedLog] = {}
        self._streams: dict[int, ResponseStream] = {}

    def follow(self, pod: Object) -> None:
        """A container that was started again is another one, with a log of its own. One that crashed between two looks
        is read while it waits to be started again, and a stream that broke or ended too early is taken up."""
        status = started_container(pod)
        if status is None:
            return
        log = self._logs.setdefault((str(pod["metadata"]["uid"]), int(status.get("restartCount", 0))), FollowedLog())
        is_read = log.has_ended and "running" not in (status.get("state") or {})
        if not (is_read or log.is_at_work or log.is_refused):
            log.is_at_work = True
            name = pod["metadata"]["name"]
            threading.Thread(target=self._read, args=(name, log), name=f"log-{name}", daemon=True).start()

    def arrived(self, timeout_s: float) -> Iterator[LogLine]:
        with contextlib.suppress(Empty):
            yield self._lines.get(timeout=timeout_s)
            for _ in range(MOST_WAITING):  # then the next look is due, though more come
                yield self._lines.get_nowait()

    def close(self) -> None:
        self._over.set()
        for stream in list(self._streams.values()):
            stream.close()

    def _read(self, pod: str, log: FollowedLog) -> None:
        log.has_ended = False
        try:
            self._pass_on(pod, log)
            log.has_ended = True
        except Forbidden:
            log.is_refused = True
        except LongboatError:
            pass  # the next look takes it up where it broke, unless the pod is gone by then
        finally:
            self._streams.pop(threading.get_ident(), None)
            log.is_at_work = False

    def _pass_on(self, pod: str, log: FollowedLog) -> None:
        """One stream to its end. Of lines that come twice the second is passed over."""
        since = format_time(log.time - OVERLAP_S) if log.time else None
        stream = self._client.log(pod, follow=True, tail=self._tail if since is None else None, since_time=since)
        self._streams[threading.get_ident()] = stream
        if self._over.is_set():  # closed while it was being opened
            stream.close()
            return
        log.time = log.time or self._client.now()
        for line in lines_of(pod, stream, log.seen):
            log.time = line.time or log.time
            self._put(line)

    def _put(self, line: LogLine) -> None:
        while not self._over.is_set():
            with contextlib.suppress(Full):
                self._lines.put(line, timeout=LOOK_S)
                return


def lines_of(pod: str, chunks: Iterator[bytes], seen: dict[str, int]) -> Iterator[LogLine]:
    """What the server has written; `seen`: what was read before a stream broke."""
    for line in lines_of_pod(chunks, seen=seen):
        yield msgspec.structs.replace(line, role="server", node=pod)
