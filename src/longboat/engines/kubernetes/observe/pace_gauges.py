"""Figures of runs that run, for Prometheus: step, pace, use, what somebody should look at, as launchers tell them.

What comes out of pods is anybody's word: only numbers are taken, under the names that objects have. Runs that were not
told of for a while are left out. Nothing is asked for here (`reconcile.service` does, and only while somebody scrapes).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from longboat.core.runs import RunStatus
from longboat.metrics.prometheus import Family, LabelledValue
from longboat.metrics.usage import total_usage

FRESH_S = 180.0
"""What was told longer ago says nothing about now."""
SCRAPED_S = 300.0
"""Scrapes are seconds or a minute apart; nobody is asked for a Prometheus that is gone."""
MOST_RUNS = 1000  # each is a dozen series, and Prometheus keeps every one that it has seen
_FIGURES: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("run_step", "The step that a run has reached.", lambda run: run.step),
    ("run_steps_per_second", "Steps per second of the rank that is furthest.", lambda run: run.steps_per_s),
    ("run_data_share", "Share of the time per step that ranks wait for data.", lambda run: run.data_share),
    ("run_cpu_cores", "Cores that its ranks use.", lambda run: total_usage(run).cpu),
    ("run_memory_bytes", "Memory that its ranks use.", lambda run: total_usage(run).memory),
    ("run_gpus", "GPUs that a run has.", lambda run: float(run.gpus)),
    ("run_gpu_percent", "Mean use of its GPUs.", lambda run: total_usage(run).gpu),
    ("run_findings", "Findings: idle GPUs, slow ranks, throttling, a loss that is no number, late data.",
     lambda run: float(len(run.findings))),
)  # fmt: skip


class PaceGauges:
    """`note` is called by whoever asks launchers, `families` by scrapes, in other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}
        self._scraped = -SCRAPED_S

    @property
    def is_wanted(self) -> bool:
        return time.monotonic() - self._scraped < SCRAPED_S

    def note(self, namespace: str, runs: Sequence[RunStatus]) -> None:
        """The runs of a namespace that run, with their ranks."""
        now = time.monotonic()
        figures_by_run = {run.name: _figures(run) for run in runs if run.phase == "running" and run.ranks}
        with self._lock:
            kept = {key: value for key, value in self._told.items() if key[0] != namespace and now - value[0] < FRESH_S}
            for name, figures in figures_by_run.items():
                if len(kept) < MOST_RUNS:
                    kept[(namespace, name)] = (now, figures)
            self._told = kept

    def families(self) -> Iterator[Family]:
        self._scraped = time.monotonic()
        with self._lock:
            fresh = [(key, figures) for key, (at, figures) in self._told.items() if self._scraped - at < FRESH_S]
        fresh.sort(key=lambda pair: pair[0])
        for name, text, _ in _FIGURES:
            values: list[LabelledValue] = []
            for (namespace, run_name), figures in fresh:
                if name in figures:
                    values.append(((("namespace", namespace), ("run", run_name)), figures[name]))
            yield name, "gauge", text, values


def _figures(run: RunStatus) -> dict[str, float]:
    """Those that a run has. Nothing else of it is kept: its ranks say as much as they like."""
    given = ((name, figure(run)) for name, _, figure in _FIGURES)
    return {name: float(value) for name, value in given if value is not None and value == value}
