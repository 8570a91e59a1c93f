"""Logs for pages: windows counted from the end, and live lines. One follower of a log serves all browsers that show it.

Lines are others' words: they leave here as JSON text, cut to a length that a page can show.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.errors import LongboatError, UsageError
from longboat.core.runs import LogLine, LogQuery
from longboat.core.times import parse_iso_time
from longboat.sdk.records import show_moment
from longboat.web.answers import Rejected
from longboat.web.events import EventLog, encoded, now_text
from longboat.web.places import ShownPlace

MOST_LINES, MOST_BYTES = 5000, 4 << 20
"""Of one answer: more than a page keeps."""
FURTHEST = 200_000
"""Lines from the end. What is earlier is reached by a time (`until`)."""
READ_BYTES = 32 << 20
"""Of one file for one answer, searched or not: a line of 100 MB costs no more memory than this."""
LONGEST_TEXT = 16 << 10
"""Bytes of a line that are shown and searched; no screen has room for more."""
FIRST_LINES = 500  # some screens; the page asks for more as somebody scrolls
BATCH_LINES, BATCH_BYTES, BATCH_S = 500, 1 << 20, 0.05
"""Of live lines: a trainer that prints a million lines wakes a page twenty times a second."""
MOST_STREAMS = 64
"""Logs that are followed at once; each has a thread."""
HISTORY_EVENTS, HISTORY_BYTES = 512, 4 << 20
"""Of a followed log, for browsers that come later or read slowly."""


def line_record(line: LogLine) -> dict[str, Any]:
    data = line.data.rstrip(b"\n")
    shown = data[:LONGEST_TEXT]
    return {
        "rank": line.rank,
        "node": line.node,
        "role": line.role,
        "stream": line.stream,
        "attempt": line.attempt + 1,
        "time": show_moment(line.time),
        "text": shown.decode("utf-8", "replace"),
        "cut": len(data) - len(shown),
    }


def query_of(params: Mapping[str, Sequence[str]]) -> LogQuery:
    """What a request asks for. Raises UsageError. Pure."""
    attempt = number(params, "attempt", 0, 1, 10_000)
    until = (params.get("until") or [""])[0]
    moment = parse_iso_time(until) if until else None
    if until and moment is None:
        raise UsageError(f"until: {until!r} is not a time", hint="2026-01-31T12:00:00.000Z")
    return LogQuery(
        ranks=tuple(whole(text, "rank", -1, 1 << 20) for text in params.get("rank", ()) if text),
        roles=tuple(text for text in params.get("role", ()) if text),
        attempt=attempt - 1 if attempt else None,
        grep=tuple(text if flag(params, "regex") else re.escape(text) for text in params.get("grep", ()) if text),
        grep_bytes=LONGEST_TEXT,
        grep_apart=flag(params, "regex"),  # here it would hold up every other request
        ignore_case=flag(params, "ignore_case"),
        until=moment,
        tail_bytes=READ_BYTES,
    )


def flag(params: Mapping[str, Sequence[str]], name: str) -> bool:
    return (params.get(name) or ["0"])[0] not in ("", "0", "false")


def number(params: Mapping[str, Sequence[str]], name: str, default: int, low: int, high: int) -> int:
    texts = [text for text in params.get(name, ()) if text]
    return whole(texts[0], name, low, high) if texts else default


def whole(text: str, name: str, low: int, high: int) -> int:
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 18 and low <= int(text) <= high):
        raise UsageError(f"{name}: {text[:40]!r} is not a whole number from {low} to {high}")
    return int(text)


def log_window(place: ShownPlace, run: str, params: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Lines `from` to `to`, counted from the end of what is asked for."""
    first, last = number(params, "from", 0, 0, FURTHEST), number(params, "to", FIRST_LINES, 1, FURTHEST)
    if not first < last <= first + MOST_LINES:
        raise UsageError(f"from {first} to {last}: not 1 to {MOST_LINES} lines", hint="from=0&to=500 are the last 500")
    query = query_of(params)
    until = time.time() if query.until is None else query.until
    query = msgspec.structs.replace(query, tail=last + 1, tail_of_all=True, until=until)
    lines = list(place.engine.logs(run, query))
    chosen = lines[max(0, len(lines) - last) : len(lines) - first]
    records, is_cut = fitting_records(chosen)
    return {
        "lines": records,
        "from": first,
        "to": first + len(records),
        "until": now_text(until),
        "more": is_cut or len(lines) > last,
    }


def fitting_records(lines: Sequence[LogLine]) -> tuple[list[dict[str, Any]], bool]:
    """The last of these lines that fit into an answer, and whether some did not."""
    records: list[dict[str, Any]] = []
    size = 0
    for line in reversed(lines):
        size += min(len(line.data), LONGEST_TEXT)
        if size > MOST_BYTES and records:
            return records[::-1], True
        records.append(line_record(line))
    return records[::-1], False


def stream_query(params: Mapping[str, Sequence[str]]) -> LogQuery:
    """Raises UsageError. Pure."""
    return msgspec.structs.replace(query_of(params), follow=True, tail=number(params, "tail", 100, 0, MOST_LINES))


class SharedLog:
    """One log that is followed, for everybody who shows it."""

    def __init__(self, place: ShownPlace, run: str, query: LogQuery) -> None:
        self.events = EventLog(HISTORY_EVENTS, HISTORY_BYTES)
        self.readers = 0
        self._place, self._run, self._query = place, run, query
        self._batch: list[dict[str, Any]] = []
        self._size, self._sent = 0, 0.0

    def start(self, on_end: Callable[[], None]) -> None:
        """`on_end`: called when the thread ends, which may be long after its last reader has left."""
        threading.Thread(target=self._follow, args=(on_end,), name=f"log-{self._run}", daemon=True).start()

    def _follow(self, on_end: Callable[[], None]) -> None:
        reason = "ended"
        try:
            for line in self._place.engine.logs(self._run, self._query, is_wanted=self._is_wanted):
                self._batch.append(line_record(line))
                self._size += min(len(line.data), LONGEST_TEXT)
                is_full = len(self._batch) >= BATCH_LINES or self._size >= BATCH_BYTES
                if is_full or time.monotonic() - self._sent >= BATCH_S:
                    self._flush()
                if self.readers <= 0:
                    break
        except LongboatError as error:
            reason = error.message
        except Exception as error:  # else browsers would wait for lines that nobody reads any more
            reason = f"{type(error).__name__}: {error}"
        finally:
            on_end()
        self._flush()
        self.events.publish("end", {"reason": reason})
        self.events.close()

    def _is_wanted(self) -> bool:
        """Asked by the engine whenever it has nothing to give: what waits is sent then."""
        self._flush()
        return self.readers > 0

    def _flush(self) -> None:
        if self._batch:
            self.events.publish("lines", {"lines": self._batch})
        self._batch, self._size, self._sent = [], 0, time.monotonic()


LogKey = tuple[str, str, str, LogQuery]
"""Place, user, run and what is asked for: nobody is shown what another has the right to read."""


class LogStreams:
    """All logs that are followed now."""

    def __init__(self) -> None:
        self._logs: dict[LogKey, SharedLog] = {}
        self._threads = 0  # also those whose readers have left: an engine notices that when it has read what is there
        self._lock = threading.Lock()

    async def follow(
        self, place: ShownPlace, run: str, params: Mapping[str, Sequence[str]], cursor: str | None
    ) -> AsyncIterator[bytes]:
        """Events of a log; of one that others follow already, from the oldest line that is kept."""
        query = stream_query(params)
        try:
            log = self._taken(place, run, query)
        except Rejected as error:  # others came between; the answer has begun
            yield encoded("end", {"reason": error.message})
            return
        try:
            start = cursor if cursor and log.events.after(cursor) is not None else log.events.beginning
            async for data in log.events.follow(start, lambda: {"time": now_text(time.time())}):
                yield data
        finally:
            self._given_back((place.name, place.user, run, query))

    def check_room(self) -> None:
        with self._lock:
            self._check_room()

    def _check_room(self) -> None:
        if self._threads >= MOST_STREAMS:
            raise Rejected(429, f"{MOST_STREAMS} logs are followed already", hint="close a page that shows one")

    def _taken(self, place: ShownPlace, run: str, query: LogQuery) -> SharedLog:
        key = (place.name, place.user, run, query)
        with self._lock:
            log = self._logs.get(key)
            is_new = log is None
            if log is None:
                self._check_room()
                self._threads += 1
                log = self._logs[key] = SharedLog(place, run, query)
            log.readers += 1
        if is_new:
            log.start(self._thread_ended)
        return log

    def _thread_ended(self) -> None:
        with self._lock:
            self._threads -= 1

    def _given_back(self, key: LogKey) -> None:
        with self._lock:
            log = self._logs[key]
            log.readers -= 1
            if log.readers <= 0:
                del self._logs[key]
