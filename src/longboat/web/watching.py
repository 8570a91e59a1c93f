"""The watcher of places: one thread for each, whatever the number of browsers; rows and events come from here alone."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.runs import RunStatus
from longboat.multicluster.ask import set_price
from longboat.web.events import EventLog, now_text
from longboat.web.places import ShownPlace
from longboat.web.rows import changes, row_of
from longboat.web.wakeups import KnownFigures, KnownSteps, watch_objects

LOOK_S = {"local": 0.15, "kubernetes": 5.0}
"""A look at this machine is a few files; a cluster is asked when its objects have changed, else for steps."""
SHARE = 5
"""Of the time, at most so small a part is spent on looking at a place, however many runs it has."""
LONGEST_REST_S = 0.5
"""After a look at this machine: the first one reads all runs, the next ones what has changed."""
GATHER_S = 0.05
"""Changes of a cluster come in groups: a gang's pods, and the record after them."""
LONGEST_PAUSE_S = 10.0
"""Between looks at a place that does not answer."""
ROWS_AT_ONCE = 200
"""Of one event: a place that is seen for the first time may have ten thousand."""
MOST_CHANGED = 2000
"""More rows at once are not sent one by one: readers load the list."""


class PlaceState:
    """What was last seen of a place."""

    def __init__(self, place: ShownPlace) -> None:
        self.place = place
        self.options = shlex.join(place.options)
        self.runs: dict[str, RunStatus] = {}
        self.rows: dict[str, msgspec.Raw] = {}
        self.error: str | None = None
        self.seen: float | None = None
        self.gpu_hour: float | None = None  # once it has answered: the settings of a cluster need its address

    def record(self) -> dict[str, Any]:
        place = self.place
        return {
            "name": place.name,
            "title": place.title,
            "kind": place.kind,
            "context": place.context,
            "namespace": place.namespace,
            "options": self.options,
            "gpu_hour": self.gpu_hour,
            "ok": self.error is None,
            "error": self.error,
            "seen": None if self.seen is None else now_text(self.seen),
            "loading": self.seen is None and self.error is None,
        }


class Watchers:
    """Watches all places until `close`."""

    def __init__(self, places: Sequence[ShownPlace], events: EventLog) -> None:
        self.places = list(places)
        self.events = events
        self._states = {place.name: PlaceState(place) for place in places}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._wake = {place.name: threading.Event() for place in places}
        self._threads = [
            threading.Thread(target=self._watch, args=(state,), name=f"watch-{name}", daemon=True)
            for name, state in self._states.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for event in self._wake.values():
            event.set()

    def nudge(self, name: str) -> None:
        """Look at a place now: somebody has just changed something there."""
        self._wake[name].set()

    # what was seen

    def clusters(self) -> list[dict[str, Any]]:
        with self._lock:
            return [state.record() for state in self._states.values()]

    def rows(self) -> tuple[str, list[msgspec.Raw]]:
        """A cursor and all rows, newest first in each place: events after the cursor change these rows."""
        with self._lock:
            return self.events.cursor, [row for state in self._states.values() for row in state.rows.values()]

    def listed(self) -> list[tuple[ShownPlace, list[RunStatus]]]:
        """All places with the runs that were last seen there."""
        with self._lock:
            return [(state.place, list(state.runs.values())) for state in self._states.values()]

    def heartbeat(self) -> dict[str, Any]:
        with self._lock:
            seen = {name: state.seen for name, state in self._states.items() if state.seen is not None}
        return {"time": now_text(time.time()), "seen": {name: now_text(moment) for name, moment in seen.items()}}

    # looking

    def _watch(self, state: PlaceState) -> None:
        engine, wake = state.place.engine, self._wake[state.place.name]
        pause = look_s = LOOK_S[state.place.kind]
        steps, figures, reflectors = KnownSteps(engine), KnownFigures(engine), list[Any]()
        while not self._stop.is_set():
            began, cpu_began, rest_s = time.monotonic(), time.thread_time(), None
            try:
                reflectors = reflectors or watch_objects(engine, wake.set)
                self.note(state.place.name, figures.add(steps.add(engine.list(), began)), time.time())
                rest_s = rest_after(state.place.kind, time.monotonic() - began, time.thread_time() - cpu_began)
                figures.ask()
                pause = look_s
            except LongboatError as error:
                self.note_trouble(state.place.name, error.message)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            except Exception as error:  # a thread that ended here would leave a page that looks alive
                self.note_trouble(state.place.name, f"{type(error).__name__}: {error}")
                pause = min(pause * 2, LONGEST_PAUSE_S)
            if rest_s is None:
                rest_s = rest_after(state.place.kind, time.monotonic() - began, time.thread_time() - cpu_began)
            self._stop.wait(rest_s + (GATHER_S if wake.wait(max(0.0, pause - rest_s)) else 0.0))
            wake.clear()
        for reflector in reflectors:
            reflector.close()

    def note(self, name: str, runs: Sequence[RunStatus], now: float) -> None:
        """Take over what was seen, and tell what has changed."""
        state = self._states[name]
        difference = changes(state.runs, runs)
        with self._lock:
            was_bad, was_seen = state.error is not None, state.seen is not None
            state.error, state.seen = None, now
            rows = {run.name: msgspec.Raw(msgspec.json.encode(row_of(run, name))) for run in difference.changed}
            if difference:
                merged = {**state.rows, **rows}
                state.runs = {run.name: run for run in runs}
                state.rows = {run: merged[run] for run in state.runs}
                self._tell(name, list(rows.values()), difference.removed)
        if not was_seen:
            state.gpu_hour = set_price(state.place.engine)
        if was_bad or not was_seen:
            self.events.publish("clusters", {"clusters": self.clusters()})

    def note_trouble(self, name: str, message: str) -> None:
        with self._lock:
            is_news = self._states[name].error != message
            self._states[name].error = message
        if is_news:
            self.events.publish("clusters", {"clusters": self.clusters()})

    def _tell(self, name: str, rows: list[msgspec.Raw], gone: Sequence[str]) -> None:
        removed = [{"cluster": name, "id": run} for run in gone]
        if len(rows) > MOST_CHANGED:
            self.events.forget()
            return
        for first in range(0, max(len(rows), 1), ROWS_AT_ONCE):
            batch = rows[first : first + ROWS_AT_ONCE]
            self.events.publish("runs", {"changed": batch, "removed": removed if first == 0 else []})


def rest_after(kind: str, wall_s: float, cpu_s: float) -> float:
    """Seconds without a look after one. On this machine what it cost counts, not how long it waited for a busy
    processor; a cluster's API server has worked for as long as it was waited for. Pure."""
    return min(cpu_s * SHARE, LONGEST_REST_S) if kind == "local" else wall_s * SHARE
