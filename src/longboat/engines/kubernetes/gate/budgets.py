"""Budgets on a namespace, and which of its waiting runs they hold back. Reads; half a minute old at most.

They are an annotation of the Namespace, which those who submit runs may usually read and not write.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence

import msgspec

from longboat.core.runs import RunStatus
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.record_store import list_records
from longboat.engines.kubernetes.records import Record
from longboat.engines.kubernetes.status import brief_status
from longboat.engines.lifecycle.budgets import Budget, held_back, read_budgets
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import answer_or_none
from longboat.kubeapi.kinds import NAMESPACE

FRESH_S = 30.0
"""A gate with runs that wait is served every few seconds: GPU-hours do not run away meanwhile."""


class _Seen(msgspec.Struct):
    at: float
    budgets: list[Budget]
    runs: list[RunStatus] = []


_SEEN: weakref.WeakKeyDictionary[Client, _Seen] = weakref.WeakKeyDictionary()


def budgets_of(client: Client) -> list[Budget]:
    """Those of the client's namespace; none where it may not be read. Raises ValueError for what cannot be read."""
    body = answer_or_none(lambda: client.get(NAMESPACE, client.namespace)) or {}
    text = (body["metadata"].get("annotations") or {}).get(names.BUDGETS) if body else None
    try:
        return read_budgets(msgspec.json.decode(text)) if text else []
    except ValueError as error:  # msgspec's own errors are such
        raise ValueError(f"namespace {client.namespace}, annotation {names.BUDGETS}: {error}") from None


def held_runs(client: Client, records: Sequence[Record], now: float) -> dict[str, str]:
    """Of these runs, which all wait and are new, those that a budget holds back, with the reason."""
    asking = [record for record in records if record.job.gpus]
    if not asking:
        return {}
    seen = _SEEN.get(client)
    if seen is None or not 0 <= now - seen.at < FRESH_S:
        seen = _SEEN[client] = _look(client, now)
    reasons = {each.name: held_back(seen.budgets, each.user, each.job.labels, seen.runs, now) for each in asking}
    return {run: reason for run, reason in reasons.items() if reason}


def _look(client: Client, now: float) -> _Seen:
    holding: list[Budget] = []
    with contextlib.suppress(ValueError):  # told by `longboat cost` and to whoever submits
        holding = [budget for budget in budgets_of(client) if budget.hold]
    runs = [brief_status(run.record, run.state) for run in list_records(client)] if holding else []
    return _Seen(at=now, budgets=holding, runs=[run for run in runs if run.gpus and run.started is not None])
