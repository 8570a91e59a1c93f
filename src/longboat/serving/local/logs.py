"""Logs of a service: the lines of all its replicas, merged; those that start later join when they are followed."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Queue

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.engine import Engine

LOOK_S = 0.5
"""How often a follower looks for new replicas."""
MOST_WAITING = 1000
"""Lines that wait for a slow reader; after that replicas' logs are read no faster than they are shown."""


def service_logs(engine: Engine, names: Callable[[], Sequence[str] | None], query: LogQuery) -> Iterator[LogLine]:
    """Each line with its replica in place of the node. `names`: the runs of the replicas, now; None: the service is
    gone, and with it the end of its log is reached."""
    if not query.follow:
        streams = [_lines(engine, name, query) for name in names() or ()]
        yield from heapq.merge(*streams, key=lambda line: line.time)
        return
    lines: Queue[LogLine] = Queue(MOST_WAITING)
    followers: dict[str, threading.Thread] = {}
    looked, is_over = 0.0, False
    while True:
        if time.monotonic() - looked > LOOK_S:
            looked, present = time.monotonic(), names()
            is_over = present is None and not any(thread.is_alive() for thread in followers.values())
            for name in set(present or ()) - set(followers):
                followers[name] = threading.Thread(target=_follow, args=(engine, name, query, lines), daemon=True)
                followers[name].start()
        try:
            yield lines.get(timeout=LOOK_S)
        except Empty:
            if is_over:
                return


def _follow(engine: Engine, name: str, query: LogQuery, lines: Queue[LogLine]) -> None:
    for line in _lines(engine, name, query):
        lines.put(line)


def _lines(engine: Engine, name: str, query: LogQuery) -> Iterator[LogLine]:
    try:
        for line in engine.logs(name, query):
            yield msgspec.structs.replace(line, node=name)
    except LongboatError:
        return  # it was removed meanwhile
