"""The status of a run: briefly from its record, in full with its ranks from the launchers or from their last words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.runs import Attempt, NodeTrouble, RankStatus, RunStatus, SpareNode, latest_step
from longboat.core.times import format_time
from longboat.engines.kubernetes.observe.node_loss import digests_of, is_reachable
from longboat.engines.kubernetes.observe.places import as_played, in_their_places, places_at
from longboat.engines.kubernetes.observe.progress import ended_ranks
from longboat.engines.kubernetes.observe.restarts import PodAttempts, attempts_of_pods, with_restarts
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot
from longboat.engines.kubernetes.records import Record, State, expected_nodes
from longboat.engines.lifecycle.timeline import AttemptMarks, with_timeline
from longboat.engines.shared.retry_policy import retry_note
from longboat.engines.shared.run_summary import brief, with_digest
from longboat.engines.shared.secret_urls import redacted_job
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.metrics.judgements import with_figures
from longboat.metrics.usage import usage_of

ENGINE = "kubernetes"
STARTING = "is being started"
"""Reason of a run whose first attempt is being made."""
MOST_ASKED = 64
"""Launchers asked for their ranks in one status; of a larger gang, the first so many."""
ASKED_AT_ONCE = 8  # each is a connection through the API server


def brief_status(record: Record, state: State) -> RunStatus:
    """`created` and `started` are told by two clocks: a run is never shown to start before it was made."""
    status = brief(ENGINE, record, state)
    is_between = not state.is_final and all(attempt.number != state.attempt for attempt in state.attempts)
    attempts = state.attempts
    if is_at_gate(record, state):  # its objects are made, and hold nothing
        attempts = tuple(each for each in attempts if each.number != state.attempt or each.failure is not None)
    return msgspec.structs.replace(
        status,
        attempts=attempts,
        created=min(record.created, state.started or record.created),
        attempt=state.number,
        step=state.step if state.is_final else None,
        metrics=state.metrics if state.is_final else {},
        priority=record.priority,
        next_attempt=state.not_before if is_between and state.not_before else None,
        expired=state.expired,
        left=() if state.expired is None else remains_of(record, state),
    )


def is_at_gate(record: Record, state: State) -> bool:
    """Whether the attempt waits to be let in, or was stopped before it was. Pure."""
    if record.gated_by != "longboat" or state.gate.let_in is not None:
        return False
    has_begun = state.attempt == 0 and state.started is not None
    return state.phase == "pending" or (state.phase == "stopped" and not has_begun)


def expiry_words(record: Record, state: State) -> str:
    """One line about an expired run, for whoever asks for more than is left. Pure."""
    left = "; ".join(remains_of(record, state)) or "nothing but its record"
    return f"{record.name} expired {format_time(state.expired or 0.0)}: its pods are gone. Left: {left}"


def remains_of(record: Record, state: State) -> tuple[str, ...]:
    """What is left of an expired run, and where. Pure."""
    places = []
    if record.storage is not None:
        places.append(f"log and artifacts: {record.storage.place}, folder {record.storage.folder}")
    elif state.tails:
        places.append("last lines of its log: `longboat logs`")
    if record.checkpoint_store is not None:
        places.append(f"checkpoints: {record.checkpoint_store}")
    elif state.checkpoint is not None and record.storage is not None:
        places.append(f"newest checkpoint: {state.checkpoint} in {record.storage.place}")
    return tuple(places)


def is_unfinished_submission(status: RunStatus) -> bool:
    """Whether the submitter has not finished yet, or died before it had."""
    return status.phase == "pending" and status.reason == STARTING and not status.attempts


def full_status(client: Client, snapshot: RunSnapshot) -> RunStatus:
    """Everything. Running launchers are asked (by exec); where that cannot be done, their ranks are left out."""
    pods = snapshot.pods_of(snapshot.state.attempt)
    answers: dict[str, dict[str, Any]] = {}
    if not snapshot.state.is_final:
        answers = ask_launchers(client, [pod for pod in pods if is_reachable(pod, snapshot)][:MOST_ASKED])
    snapshot, answers = _as_played(snapshot, answers)
    status = make_status(snapshot, answers)
    status = msgspec.structs.replace(status, node_troubles=_node_troubles(client, snapshot))
    return with_figures(status, client.now())


def _as_played(
    snapshot: RunSnapshot, answers: dict[str, dict[str, Any]]
) -> tuple[RunSnapshot, dict[str, dict[str, Any]]]:
    """Pods, and the answers of their launchers, by the nodes that they play where spares have taken places."""
    if not snapshot.record.job.spares:
        return snapshot, answers
    in_pods = attempts_of_pods(snapshot, answers)
    attempts = with_restarts(snapshot.state.attempts, in_pods)
    places = places_at(snapshot.record.job, attempts, in_pods.last)
    named = {places.get(pod, pod): answer for pod, answer in answers.items()}
    return as_played(snapshot, attempts, in_pods.last), named


def spares_of(snapshot: RunSnapshot, answers: Mapping[str, Mapping[str, Any]]) -> tuple[SpareNode, ...]:
    """Spares that there are now, ready once their launchers say that they wait. Pure."""
    members = set(expected_nodes(snapshot.record.job))
    return tuple(
        SpareNode(
            node=pod.node,
            pod=pod.name,
            host=pod.host,
            is_ready=answers.get(pod.node, {}).get("phase") == "waiting",
            since=pod.started,
        )
        for pod in snapshot.pods_of(snapshot.state.attempt)
        if pod.node not in members and pod.end is None
    )


def _node_troubles(client: Client, snapshot: RunSnapshot) -> tuple[NodeTrouble, ...]:
    """Node problems of a running run; none where nodes may not be read."""
    from longboat.engines.kubernetes.observe.node_health import node_troubles
    from longboat.engines.kubernetes.observe.observe import node_bodies

    pods = () if snapshot.state.is_final else snapshot.pods_of(snapshot.state.attempt)
    hosts = {pod.host for pod in pods if pod.host and pod.end is None}
    try:
        return node_troubles(snapshot, node_bodies(client, hosts)) if hosts else ()
    except ApiError:
        return ()


def with_step(run: RunStatus, pod: PodView, answer: Mapping[str, Any]) -> RunStatus:
    """A run with the step that one of its launchers tells. Pure."""
    step, metrics = latest_step(_live_ranks(pod, answer))
    return msgspec.structs.replace(run, step=step, metrics=metrics)


def with_ranks(run: RunStatus, answered: Sequence[tuple[PodView, Mapping[str, Any]]]) -> RunStatus:
    """A run with the ranks, the step and the metrics that its launchers tell. Pure."""
    ranks = [rank for pod, answer in answered for rank in _live_ranks(pod, answer)]
    step, metrics = latest_step(ranks)
    return msgspec.structs.replace(
        run, step=step, metrics=metrics, ranks=tuple(sorted(ranks, key=lambda rank: rank.rank))
    )


def ask_launchers(
    client: Client, pods: Sequence[PodView], *, by_pod: bool = False, most_bytes: int | None = None
) -> dict[str, dict[str, Any]]:
    """Status of each pod's launcher, by node; launchers that do not answer in time, or at length, are left out.

    `by_pod`: by the name of the pod, where they are of several runs.
    """
    if not pods:
        return {}
    import queue
    import threading
    import time

    from longboat.engines.kubernetes.exec.launcher_calls import ASK_S, MOST_ANSWER, ask_status

    left = queue.SimpleQueue[PodView]()
    answers = queue.SimpleQueue[tuple[str, "dict[str, Any] | None"]]()
    deadline = time.monotonic() + ASK_S
    for pod in pods:
        left.put(pod)

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                pod = left.get_nowait()
            except queue.Empty:
                return
            answers.put((pod.name if by_pod else pod.node, ask_status(client, pod.name, most_bytes or MOST_ANSWER)))

    # Not a pool: its threads are waited for, and one that asks on a dead node is not worth that.
    for _ in range(min(ASKED_AT_ONCE, len(pods))):
        threading.Thread(target=work, name="ask-launcher", daemon=True).start()
    launchers: dict[str, dict[str, Any]] = {}
    for _ in pods:
        try:
            node, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if answer is not None:
            launchers[node] = answer
    return launchers


def make_status(snapshot: RunSnapshot, answers: Mapping[str, Mapping[str, Any]]) -> RunStatus:
    """Pure: the record, the pods and the launchers' answers as one status."""
    record, state = snapshot.record, snapshot.state
    pods = snapshot.pods_of(state.attempt)
    ranks: list[RankStatus] = []
    for pod in pods:
        ranks += _live_ranks(pod, answers[pod.node]) if pod.node in answers else ended_ranks(pod)
    ranks = in_their_places(record.job, ranks)
    first = next((answers[pod.node] for pod in pods if pod.node in answers and answers[pod.node].get("checkpoint")), {})
    step, metrics = latest_step(ranks)
    if step is None and state.is_final:
        step, metrics = state.step, state.metrics
    spares = spares_of(snapshot, answers)
    idle = {spare.node for spare in spares}
    brief = _with_launchers(
        brief_status(record, state), {node: answer for node, answer in answers.items() if node not in idle}
    )
    in_pods = attempts_of_pods(snapshot, answers)
    if in_pods.is_restarted and not state.is_final:
        brief = _in_place(brief, in_pods, record)
    status = msgspec.structs.replace(
        brief,
        step=step,
        metrics=metrics,
        checkpoint=str(first["checkpoint"]) if first.get("checkpoint") else state.checkpoint,
        checkpoint_dir=record.checkpoint_store or record.checkpoint_dir,
        artifacts_dir=record.artifacts_dir,
        attempts=_with_resumed(brief, answers),
        drill=record.drill,
        spares=spares,
        images={
            role: with_digest(record.images.get(role, ""), digest) for role, digest in digests_of(snapshot).items()
        },
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        spec=redacted_job(record.job),
    )
    in_place = {
        each.number: AttemptMarks(trained=each.running) for each in status.attempts if each.restart == "in-place"
    }
    return with_timeline(status, {**_marks(snapshot), **in_place}, pulls=True)


def _marks(snapshot: RunSnapshot) -> dict[int, AttemptMarks]:
    """When all containers of an attempt ran, of attempts whose pods are there. Pure."""
    marks = {}
    members = set(expected_nodes(snapshot.record.job))  # a spare may come later
    for number in {pod.attempt for pod in snapshot.pods}:
        starts = [pod.started for pod in snapshot.pods_of(number) if pod.node in members]
        known = [start for start in starts if start is not None]
        if len(known) == len(starts) == snapshot.record.job.nodes:
            marks[number] = AttemptMarks(pulled=max(known))
    return marks


def _in_place(status: RunStatus, in_pods: PodAttempts, record: Record) -> RunStatus:
    """A run whose pods were restarted in place since its record was written. Pure."""
    attempts = with_restarts(status.attempts, in_pods, is_last=in_pods.running is not None)
    status = msgspec.structs.replace(status, attempt=in_pods.last, attempts=attempts)
    failure = attempts[-1].failure if attempts else None
    if failure is None or status.phase not in ("running", "starting"):
        return status
    note = retry_note(failure, number=in_pods.last, retries=record.job.retries)
    waits = f"; {status.reason}" if status.reason else ""
    return msgspec.structs.replace(status, phase="recovering", reason=note + waits)


def _with_resumed(status: RunStatus, answers: Mapping[str, Mapping[str, Any]]) -> tuple[Attempt, ...]:
    """The attempt under way with the checkpoint that it started from, as its launchers tell it."""
    path = next((str(answer["resumed_from"]) for answer in answers.values() if answer.get("resumed_from")), None)
    return tuple(
        msgspec.structs.replace(attempt, resumed_from=path) if path and attempt.number == status.attempt else attempt
        for attempt in status.attempts
    )


def _with_launchers(status: RunStatus, answers: Mapping[str, Mapping[str, Any]]) -> RunStatus:
    """A gang whose launchers still prepare is not running yet, although its pods are."""
    if status.phase != "running" or status.reason:
        return status
    problems = [
        f"node {node}: {problem}" for node, answer in answers.items() for problem in answer.get("problems") or ()
    ]
    if problems:
        return msgspec.structs.replace(status, reason=problems[0])
    phases = {str(answer.get("phase")) for answer in answers.values()}
    missing = sorted({str(node) for answer in answers.values() for node in answer.get("missing") or ()})
    if "setup" in phases:
        return msgspec.structs.replace(status, phase="starting", reason="runs setup")
    if missing and "running" not in phases:
        return msgspec.structs.replace(status, phase="starting", reason=f"waits for {', '.join(missing)}")
    return status


def _live_ranks(pod: PodView, answer: Mapping[str, Any]) -> list[RankStatus]:
    """How long a rank has been silent is its launcher's word: its clock may be another than ours and the server's."""
    statuses = []
    ranks = answer.get("ranks")
    for name, facts in ranks.items() if isinstance(ranks, dict) else ():
        code, step, metrics = facts.get("exit_code"), facts.get("step"), facts.get("metrics")
        silent_s = facts.get("silent_s")
        is_alive = code is None and bool(facts.get("alive"))
        statuses.append(
            RankStatus(
                rank=int(name),
                role=pod.role,
                node=pod.node,
                alive=is_alive,
                step=int(step) if isinstance(step, (int, float)) else None,
                metrics=metrics if isinstance(metrics, dict) else {},
                silent_s=float(silent_s) if isinstance(silent_s, (int, float)) and is_alive else None,
                exit_code=code if isinstance(code, int) else None,
                usage=usage_of(facts.get("usage")),
            )
        )
    return statuses
