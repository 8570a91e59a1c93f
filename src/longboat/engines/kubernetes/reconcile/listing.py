"""Lists all runs of a namespace with their present states; takes no turn of any.

A list changes nothing: somebody who looks at the runs of others leaves them as they are, and hundreds of runs that wait
cost a few requests. Turns are taken by those who follow a run, and by the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from longboat.core.guards.background_call import BackgroundCall
from longboat.core.runs import RunStatus
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.gate.node_usage import free_gpus, observe_room
from longboat.engines.kubernetes.observe.observe import list_queued, queue_of, snapshot_of
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, pod_view, workload_view
from longboat.engines.kubernetes.reconcile.outlook import predicted
from longboat.engines.kubernetes.record_store import ListedRun, list_records
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.slim_objects import RunPod, SlimWorkload
from longboat.engines.kubernetes.status import MOST_ASKED, ask_launchers, brief_status, with_ranks, with_step
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, ObjectNotFound, answer_or_none
from longboat.kubeapi.kinds import JOB, JOBSET, POD, Kind
from longboat.metrics.judgements import with_figures
from longboat.metrics.usage import gpus_of
from longboat.metrics.values import Activity

AT_ONCE = 100
"""Runs named in one selector, of at most 41 characters each: an address of 8 KiB is what every proxy passes on."""
UNATTENDED_S = 60.0
"""A controller, or a command that follows the run, restarts it within seconds; the longest backoff is a minute."""
MOST_NAMED = 400
"""Of more runs that have not ended, everything is listed: what ended runs left is then the smaller part."""


def list_runs(client: Client, notice: Callable[[str], None], *, labels: str = "") -> Sequence[RunStatus]:
    """Newest first. `labels`: only runs with these."""
    seen = list(list_records(client, notice, labels=labels))
    opened = [listed_run for listed_run in seen if not listed_run.state.is_final]
    states = predicted_states(client, opened, notice) if opened else {}
    statuses = [brief_status(run.record, states.get(run.record.name, run.state)) for run in seen]
    return sorted(statuses, key=lambda status: (-status.created, status.name))


def predicted_states(client: Client, opened: Sequence[ListedRun], notice: Callable[[str], None]) -> dict[str, State]:
    """The states that turns would write; of a run whose parts cannot be seen, none."""
    try:
        snapshots = listed_snapshots(client, opened)
    except ApiError as error:
        notice(f"runs are shown as they were last seen: {error.message}")
        return {}
    now = client.now()
    return {
        name: with_overdue_restart(snapshot, predicted(snapshot, now).snapshot.state, now)
        for name, snapshot in snapshots.items()
    }


def listed_snapshots(client: Client, opened: Sequence[ListedRun]) -> dict[str, RunSnapshot]:
    """Runs with their workloads and pods, by a few lists. Nodes are not looked at. Raises ApiError."""
    kinds = {JOBSET if run.record.workload == "jobset" else JOB for run in opened}
    runs = [listed_run.record.name for listed_run in opened]
    pods = BackgroundCall(lambda: _by_run(client, POD, runs, RunPod))
    lists = [BackgroundCall(partial(_by_run, client, kind, runs, SlimWorkload)) for kind in kinds]
    is_queued = any(run.record.gated_by == "kueue" for run in opened)
    queued = list_queued(client) if is_queued else []
    made = [call.result() for call in lists]
    shown = pods.result()
    snapshots = {}
    for listed in opened:
        name = listed.record.name
        workloads = [workload_view(body) for bodies in made for body in bodies.get(name, ())]
        snapshots[name] = snapshot_of(
            listed.body,
            workloads=workloads,
            pods=[pod_view(body) for body in shown.get(name, ())],
            queue=queue_of(listed.record, listed.state, workloads, queued),
        )
    return snapshots


def with_steps(client: Client, runs: Sequence[RunStatus]) -> list[RunStatus]:
    """The runs, those that run with the step that the launcher of their first node tells; as many as can be asked."""
    asked = [run for run in runs if run.phase == "running"][:MOST_ASKED]
    try:
        bodies = _by_run(client, POD, [run.name for run in asked], RunPod) if asked else {}
    except ApiError:
        return list(runs)
    first: dict[str, PodView] = {}
    for run in asked:
        views = [view for view in map(pod_view, bodies.get(run.name, ())) if view.attempt == run.attempt]
        if running := [view for view in views if view.is_running and not view.is_unready]:
            first[run.name] = min(running, key=lambda view: view.index)
    answers_by_pod = ask_launchers(client, list(first.values()), by_pod=True)
    answers = {name: (pod, answers_by_pod[pod.name]) for name, pod in first.items() if pod.name in answers_by_pod}
    return [with_step(run, *answers[run.name]) if run.name in answers else run for run in runs]


def activity_of(
    client: Client,
    runs: Sequence[RunStatus],
    *,
    most: int = MOST_ASKED,
    most_bytes: int | None = None,
    with_free: bool = True,
) -> Activity:
    """The runs that have not ended, and the GPUs that their launchers tell of, as many as can be asked; and those
    that nobody has."""
    opened = [run for run in runs if not run.is_final]
    asked = [run for run in opened if run.phase == "running"]
    try:
        bodies = _by_run(client, POD, [run.name for run in asked], RunPod) if asked else {}
    except ApiError:
        bodies = {}
    pods = {
        run.name: [
            view
            for view in map(pod_view, bodies.get(run.name, ()))
            if view.attempt == run.attempt and view.is_running and not view.is_unready
        ]
        for run in asked
    }
    # The first node of every run before further nodes of any: a large gang leaves the others visible.
    first = sorted((view for views in pods.values() for view in views), key=lambda view: view.index)
    answers = ask_launchers(client, first[:most], by_pod=True, most_bytes=most_bytes)
    now, gpus, shown = client.now(), [], []
    for run in opened:
        answered = [(view, answers[view.name]) for view in pods.get(run.name, ()) if view.name in answers]
        shown.append(with_figures(with_ranks(run, answered), now) if answered else run)
        for view, answer in answered:
            node = f"{view.host} ({view.node})" if view.host else view.node
            sampled = gpus_of(answer.get("gpus"), node)
            gpus += [msgspec.structs.replace(gpu, run=run.name, user=run.user) for gpu in sampled]
    room = answer_or_none(lambda: observe_room(client, with_claims=False)) if with_free else None
    return Activity(runs=tuple(shown), gpus=(*gpus, *(free_gpus(room) if room is not None else ())))


def with_overdue_restart(snapshot: RunSnapshot, state: State, now: float) -> State:
    """The state; of a run that should have been restarted long ago, with who can do that. Pure.

    A list takes no turns: it foresees the same retry again and again, for as long as nobody makes it.
    """
    if state.phase != "recovering" or snapshot.workloads_of(state.attempt):
        return state
    stored, name = snapshot.state, snapshot.record.name
    ends = [pod.end.ended for pod in snapshot.pods_of(stored.attempt) if pod.end is not None and pod.end.ended]
    due = stored.not_before if stored.attempt == state.attempt else max(ends, default=now)
    if now - due < UNATTENDED_S:
        return state
    drivers = f"{snapshot.record.user} with `longboat wait {name}`, or a controller (`longboat install`)"
    return msgspec.structs.replace(state, reason=f"{state.reason}; nobody restarts it: that is up to {drivers}")


def _by_run(client: Client, kind: Kind, runs: Sequence[str], into: Any) -> dict[str, list[Any]]:
    """Objects of these runs. Those of ended runs may be many more: they are not read where few are asked for."""
    labels = f"{names.OURS},{names.ROLE}" if kind is POD else names.OURS
    selectors: Iterable[str] = (f"{labels},{names.RUN}",)
    if len(runs) <= MOST_NAMED:
        groups = (runs[first : first + AT_ONCE] for first in range(0, len(runs), AT_ONCE))
        selectors = [f"{labels},{names.RUN} in ({','.join(group)})" for group in groups]
    by_run: dict[str, list[Any]] = {}
    for selector in selectors:
        try:
            items = client.list(kind, labels=selector, into=into).items
        except ObjectNotFound:
            return {}  # JobSet was taken out of the cluster since
        for body in items:
            run = (body["metadata"].get("labels") or {}).get(names.RUN)
            if run is not None:  # a server that heeds no selector is no server of ours
                by_run.setdefault(run, []).append(body)
    return by_run
