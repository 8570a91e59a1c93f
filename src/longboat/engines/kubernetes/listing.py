"""All runs of a namespace: one list of records, and a turn for those that may have moved on since somebody looked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longboat.core.errors import EngineError, NotFound
from longboat.core.runs import RunStatus
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.api.client import Client
from longboat.engines.kubernetes.api.errors import ApiError
from longboat.engines.kubernetes.api.kinds import CONFIG_MAP, POD
from longboat.engines.kubernetes.observe import is_record, read_record
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.statuses import brief_status
from longboat.engines.kubernetes.views import PodView, pod_view

RECORDS = f"{names.MANAGED_BY}=longboat,{names.KIND}=run"
MOST_TURNS = 50
"""Runs that one list drives on: of more, the others are shown as they were last seen."""
PODS = f"{names.MANAGED_BY}=longboat,{names.ROLE}"


def list_runs(client: Client, notice: Callable[[str], None]) -> Sequence[RunStatus]:
    """Newest first. Runs whose pods show something new are driven on; the others cost nothing."""
    from longboat.engines.kubernetes.drive import turn

    seen = records(client, notice)
    pods = _pods(client) if any(not state.is_final for _, state in seen) else {}
    found = []
    turns = 0
    for record, state in seen:
        if turns < MOST_TURNS and not state.is_final and is_stale(record, state, pods.get(record.name, [])):
            turns += 1
            try:
                snapshot = turn(client, record.name).snapshot
            except NotFound:
                continue
            except ApiError as error:
                notice(f"{record.name}: {error.message}")
            else:
                record, state = snapshot.record, snapshot.state
        found.append(brief_status(record, state))
    return sorted(found, key=lambda status: (-status.created, status.name))


def records(client: Client, notice: Callable[[str], None] | None = None) -> list[tuple[Record, State]]:
    """All runs of the namespace; one whose record is damaged is told of and left out."""
    found: list[tuple[Record, State]] = []
    for body in client.list(CONFIG_MAP, labels=RECORDS).items:
        try:
            found += [read_record(body)] if is_record(body) else []
        except EngineError as error:
            if notice is not None:
                notice(error.message)
    return found


def _pods(client: Client) -> dict[str, list[PodView]]:
    found: dict[str, list[PodView]] = {}
    for body in client.list(POD, labels=PODS).items:
        run = (body["metadata"].get("labels") or {}).get(names.RUN, "")
        found.setdefault(run, []).append(pod_view(body))
    return found


def is_stale(record: Record, state: State, pods: Sequence[PodView]) -> bool:
    """Whether the record says less than the pods show. Pure."""
    mine = [pod for pod in pods if pod.attempt == state.attempt]
    if state.phase != "running":
        return True
    return len(mine) < record.job.nodes or any(pod.end is not None or not pod.is_running for pod in mine)
