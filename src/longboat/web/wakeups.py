"""Wake-ups for the watcher of a cluster: its records and pods are watched, so that a list is asked for when it differs.

Only the names and versions of objects are kept; what they say is read by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from longboat.core.runs import RunStatus
from longboat.engines.engine import Engine
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.names import OURS
from longboat.engines.kubernetes.record_store import RUN_RECORDS
from longboat.kubeapi.kinds import CONFIG_MAP, POD
from longboat.kubeapi.watch import Reflector

STEPS_S = 5.0
"""Launchers are asked for their steps by exec: a trainer's step changes more often than anybody looks."""


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
