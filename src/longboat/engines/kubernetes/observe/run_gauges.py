"""Figures of all runs that a controller sees, for Prometheus: how many are in which phase, how they ended.

Kept from what its watch of records tells; nothing is asked for. Names of runs are labels only while a run has not
ended, so that what a scrape holds does not grow with the history of a cluster.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from longboat.core.jobs import CAUSES
from longboat.core.runs import FINAL_PHASES, Phase
from longboat.engines.kubernetes.observe.pace_gauges import PaceGauges
from longboat.engines.kubernetes.records import State
from longboat.metrics.prometheus import Family, LabelledValue, families

PREFIX = "longboat_"
MOST_NAMED = 1000
"""Unfinished runs with figures of their own; more would be a burden for whoever stores them."""


class _Seen(NamedTuple):
    phase: Phase
    attempt: int
    started: float | None


_Named = tuple[tuple[str, str], _Seen]


class RunGauges:
    """`note` is called by the watch, `text` by scrapes, in other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], _Seen] = {}
        self._ended: Counter[tuple[str, str, str]] = Counter()
        self.pace = PaceGauges()

    def note(self, namespace: str, run: str, state: State, *, is_deleted: bool = False) -> None:
        """A record has changed."""
        key = (namespace, run)
        with self._lock:
            before = self._runs.pop(key, None)
            if is_deleted:
                return
            self._runs[key] = _Seen(state.phase, state.attempt, state.started)
            # Runs that had ended before this process began are no news.
            if state.is_final and before is not None and before.phase not in FINAL_PHASES:
                self._ended[(namespace, state.phase, _cause(state.cause))] += 1

    def running(self) -> list[str]:
        """Namespaces with runs that run."""
        with self._lock:
            return sorted({namespace for (namespace, _), seen in self._runs.items() if seen.phase == "running"})

    def text(self, is_leader: Callable[[], bool]) -> str:
        with self._lock:
            runs, ended = dict(self._runs), Counter(self._ended)
        return families(PREFIX, [_leader(is_leader()), *_families(runs, ended), *self.pace.families()])


def _cause(cause: str | None) -> str:
    """Records are anybody's word, and each label is kept for as long as this process is."""
    return "" if not cause else cause if cause in CAUSES else "other"


def _leader(leads: bool) -> Family:
    return "controller_leader", "gauge", "1 while this process works.", [((), float(leads))]


def _families(runs: dict[tuple[str, str], _Seen], ended: Counter[tuple[str, str, str]]) -> Iterator[Family]:
    phases = Counter((namespace, seen.phase) for (namespace, _), seen in runs.items())
    yield (
        "runs",
        "gauge",
        "Runs by phase; ended ones until they are removed.",
        [((("namespace", space), ("phase", phase)), float(count)) for (space, phase), count in sorted(phases.items())],
    )
    yield (
        "runs_ended_total",
        "counter",
        "Runs that have ended since this process began to lead, by phase and cause.",
        [
            ((("namespace", space), ("phase", phase), ("cause", cause)), float(count))
            for (space, phase, cause), count in sorted(ended.items())
        ],
    )
    opened = _shared([(key, seen) for key, seen in sorted(runs.items()) if seen.phase not in FINAL_PHASES])
    yield "run_attempt", "gauge", "The attempt of a run that has not ended, from 1.", _by_run(opened, _attempt)
    started = [(key, seen) for key, seen in opened if seen.started is not None]
    yield "run_started_timestamp_seconds", "gauge", "When its first ranks started.", _by_run(started, _start)


def _shared(opened: list[_Named]) -> list[_Named]:
    """So many that none is too much, of each namespace as many as of the others: none hides theirs with its own."""
    places: Counter[str] = Counter()
    ranked = []
    for key, seen in opened:
        places[key[0]] += 1
        ranked.append((places[key[0]], key, seen))
    return sorted((key, seen) for _, key, seen in sorted(ranked)[:MOST_NAMED])


def _attempt(seen: _Seen) -> float:
    return float(seen.attempt + 1)


def _start(seen: _Seen) -> float:
    return seen.started or 0.0


def _by_run(runs: list[_Named], figure: Callable[[_Seen], float]) -> list[LabelledValue]:
    return [((("namespace", space), ("run", run), ("phase", seen.phase)), figure(seen)) for (space, run), seen in runs]
