"""Rows of runs as pages get them: `ps -o json` with an address, without what is empty. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from longboat.core.runs import REPLICA_OF, RunStatus
from longboat.metrics.judgements import gpu_hours
from longboat.sdk.records import run_record
from longboat.workbench.jobs import KIND_LABEL

Key = tuple[str, str]
"""Cluster and id of a run."""


def row_of(run: RunStatus, cluster: str) -> dict[str, Any]:
    """A row; a run that goes on changes with what happens to it, not with the time that passes."""
    record = run_record(run)
    if run.is_final and run.gpu_hours is None:
        record["gpu_hours"] = gpu_hours(run, run.ended or run.created)
    row = {
        "cluster": cluster,
        "id": run.name,
        "owner": run.user,
        "kind": kind_of(run),
        "sweep": run.labels.get("sweep"),
        "trial": run.labels.get("trial"),
        **record,
    }
    return {name: value for name, value in row.items() if value is not None and value not in ("", [], {})}


def kind_of(run: RunStatus) -> str:
    if run.is_replica or REPLICA_OF in run.labels:
        return "replica"
    return run.labels.get(KIND_LABEL) or "run"


class RunChanges:
    """What has changed between two looks at one place."""

    def __init__(self, changed: list[RunStatus], removed: list[str]) -> None:
        self.changed = changed
        self.removed = removed

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


def changes(before: Mapping[str, RunStatus], runs: Iterable[RunStatus]) -> RunChanges:
    """Runs that are new or other than before, oldest first, and names of those that are gone."""
    now = {run.name: run for run in runs}
    changed = [run for name, run in reversed(now.items()) if before.get(name) is not run and before.get(name) != run]
    return RunChanges(changed, [name for name in before if name not in now])
