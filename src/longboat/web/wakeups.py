"""Wake-ups for the watcher of a cluster, and what lists do not have: steps in a cluster, findings of runs at work.

Of watched objects only the names and versions are kept; what they say is read by the engine.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.runs import RunStatus
from longboat.engines.engine import Engine
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.names import OURS
from longboat.engines.kubernetes.record_store import RUN_RECORDS
from longboat.kubeapi.kinds import CONFIG_MAP, POD
from longboat.kubeapi.watch import Reflector

STEPS_S = 5.0
"""Launchers are asked for their steps by exec: a trainer's step changes more often than anybody looks."""


FIGURES_S = {"local": 5.0, "kubernetes": 60.0}
"""Between two looks at a run at work in full: a few files here, several requests there. One run at a time is asked for,
so that a thousand of them cost no more."""
REST_SHARE = 10
"""A run of thousands of ranks takes seconds to look at: changes of others do not wait for that all the time."""


class ObjectVersion(msgspec.Struct):
    """An object, as far as a change of it can be told."""

    class Meta(msgspec.Struct, rename="camel"):
        uid: str = ""
        resource_version: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)


def watch_objects(engine: Engine, wake: Callable[[], None]) -> list[Reflector[ObjectVersion]]:
    """Call `wake` whenever something of a run changes; of an engine without watches nothing."""
    if not isinstance(engine, KubernetesEngine):
        return []
    return [
        Reflector(engine.client, kind, labels=labels, into=ObjectVersion, on_change=lambda change: wake())
        for kind, labels in ((CONFIG_MAP, RUN_RECORDS), (POD, OURS))
    ]


class KnownSteps:
    """Steps of runs between two times that launchers are asked: a list of a cluster has none."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked = -STEPS_S
        self._known: dict[tuple[str, int], RunStatus] = {}

    def add(self, runs: Sequence[RunStatus], now: float) -> Sequence[RunStatus]:
        """The runs with what was last told of their steps. `now`: monotonic."""
        if self._engine.name != "kubernetes":
            return runs
        if now - self._asked >= STEPS_S:
            self._asked = now
            runs = self._engine.with_steps(runs)
            self._known = {(run.uid, run.attempt): run for run in runs if run.step is not None and not run.is_final}
            return runs
        return [self._with_known(run) for run in runs]

    def _with_known(self, run: RunStatus) -> RunStatus:
        known = self._known.get((run.uid, run.attempt))
        if known is None or run.step is not None:
            return run
        return msgspec.structs.replace(run, step=known.step, metrics=known.metrics)


class KnownFigures:
    """Pace, findings and newest checkpoint of runs at work: what matters of them now, and a list has none of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._working: dict[tuple[str, int], str] = {}
        self._asked: dict[tuple[str, int], float] = {}
        self._known: dict[tuple[str, int], RunStatus] = {}
        self._free_at = -math.inf

    def add(self, runs: Sequence[RunStatus]) -> Sequence[RunStatus]:
        """The runs with what was last told of them."""
        self._working = {(run.uid, run.attempt): run.name for run in runs if run.phase == "running"}
        self._asked = {key: self._asked.get(key, -math.inf) for key in self._working}
        self._known = {key: self._known[key] for key in self._working if key in self._known}
        return [self._with_figures(run) for run in runs] if self._known else runs

    def ask(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Look at the run in full that was not looked at for longest, where it is time for that."""
        began = clock()
        due = min(self._working, key=lambda key: self._asked[key], default=None)
        if due is None or began < max(self._free_at, self._asked[due] + FIGURES_S[self._engine.name]):
            return
        self._asked[due] = began
        with contextlib.suppress(LongboatError):  # removed meanwhile, or away: the list will tell
            self._known[due] = self._engine.status(self._working[due])
        ended = clock()
        self._free_at = ended + (ended - began) * REST_SHARE

    def _with_figures(self, run: RunStatus) -> RunStatus:
        known = self._known.get((run.uid, run.attempt))
        if known is None or run.phase != "running":
            return run
        return msgspec.structs.replace(
            run, steps_per_s=known.steps_per_s, findings=known.findings, checkpoint=known.checkpoint
        )
