"""Selection of ended runs that are old enough to be removed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from longboat.core.runs import FINAL_PHASES, PrunedItem, PruneQuery, RunStatus


def expired(runs: Iterable[RunStatus], query: PruneQuery) -> Iterator[PrunedItem]:
    """A run that has not ended, or does not know when it did, is never among them."""
    for run in runs:
        if run.phase not in FINAL_PHASES or run.phase not in query.phases or run.ended is None:
            continue
        if run.ended < query.ended_before:
            yield PrunedItem(kind="run", name=run.name, phase=run.phase, ended=run.ended, user=run.user)
