"""Outcome of an attempt from its ended pods: succeeded, stopped or failed, by whose fault, with which exit code. Pure.

Node 0's launcher saw all others and its verdict (core/first_failure.py) counts. Without it (its pod vanished, it never
started) the pods' own words and Kubernetes' conditions are weighed: no clock orders them, and most of them are
consequences of one another. What comes next is not decided here (`decide`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal

import msgspec

from longboat.core.errors import RUN_LOST_EXIT
from longboat.core.first_failure import NEVER_STARTED, exit_code_of, stop_code
from longboat.core.jobs import Job, Value
from longboat.core.runs import Attempt, Failure, latest_step
from longboat.core.words import listing
from longboat.engines.kubernetes.observe.node_loss import NODE_LOST, vanished_on_lost_host
from longboat.engines.kubernetes.observe.progress import ended_ranks, facts_of, members_of
from longboat.engines.kubernetes.observe.restarts import PodAttempts, with_restarts
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.observe.termination import GangEnd, PodEnd
from longboat.engines.kubernetes.records import State, expected_nodes

CONSEQUENCES = ("preemption", "peers", "lost")
"""Causes that may follow from another node's end, the likeliest origin first."""


class AttemptOutcome(Value, frozen=True):
    how: Literal["succeeded", "failed", "stopped"]
    exit_code: int | None = None
    failure: Failure | None = None

    def code_when_stopped(self, attempts: Sequence[Attempt], had: PodAttempts) -> int | None:
        """The exit code of a stopped run: of its ranks, else of the failure before. Ranks of a restart in place that
        the stop has ended, with pods that went without a word or as if they were preempted, have none."""
        failures = [attempt.failure for attempt in attempts if attempt.failure is not None]
        if self.exit_code is not None or not failures:
            return self.exit_code
        last = attempts[-1].failure
        if had.is_restarted and (last is None or last.cause == "preemption"):
            return None
        return failures[-1].exit_code


def deciding_nodes(job: Job) -> list[str]:
    return [f"{role.name}-{index}" for role in job.roles if role.name in job.ends for index in range(role.nodes)]


def is_over(snapshot: RunSnapshot, attempt: int) -> bool:
    """Whether nothing of the attempt runs or is going to run: its pods have ended, or are gone with their Jobs' end."""
    pods = snapshot.pods_of(attempt)
    if any(pod.end is None for pod in pods):
        return False
    members = members_of(snapshot)
    missing = set(members) - {pod.node for pod in pods}
    if members[0] not in missing:  # with node 0 ends the attempt: who is still replaced has nothing to take part in
        missing -= {pod.node for pod in snapshot.replaced if pod.attempt == attempt}
        missing = set() if snapshot.record.job.spares and snapshot.state.phase == "running" else missing
    if not missing:
        return True
    if any(pod.is_lost for pod in pods) and attempt == snapshot.state.attempt:
        # A pod on a lost node keeps its Job from ending; an index that had its pod gets no other.
        state = snapshot.state
        return state.phase == "running" or state.is_final or missing <= snapshot.failed_nodes
    return all(workload.failed is not None or workload.is_complete for workload in snapshot.workloads_of(attempt))


def judge(snapshot: RunSnapshot, attempt: int) -> AttemptOutcome:
    """The verdict over an attempt that is over. Pods of lost nodes have their end already (`with_losses`)."""
    job = snapshot.record.job
    ends = {pod.node: pod.end for pod in snapshot.pods_of(attempt) if pod.end is not None}
    sentence = next((known.failure for known in snapshot.state.attempts if known.number == attempt), None)
    first = ends.get(expected_nodes(job)[0])
    if sentence is not None:
        verdict = _failed(sentence)
    elif first is not None and first.said is not None and first.said.gang is not None:
        verdict = _gang_verdict(first.said.gang, first)
        if verdict.how == "stopped" and not _was_asked(snapshot):
            verdict = _weigh(snapshot, attempt, ends)  # it was told to end because somebody else was dead
    else:
        verdict = _weigh(snapshot, attempt, ends)
    verdict = _with_loss(verdict, snapshot, attempt)
    if snapshot.stop is not None and verdict.how == "failed":
        return AttemptOutcome(how="stopped", exit_code=_stop_code(verdict, ends), failure=None)
    return verdict


def _gang_verdict(gang: GangEnd, first: PodEnd) -> AttemptOutcome:
    ended_by = first.said.ended_by if first.said is not None else None
    if gang.cause is not None:
        return _failed(
            Failure(
                cause=gang.cause,
                exit_code=exit_code_of(gang.cause, gang.exit_code),
                message=gang.message,
                rank=gang.first,
                tail=tuple(gang.tail),
            )
        )
    if ended_by == "stop":
        return AttemptOutcome(how="stopped", exit_code=gang.exit_code)
    if gang.exit_code:
        return _failed(Failure(cause="exit", exit_code=gang.exit_code, message=gang.message, rank=gang.first))
    return AttemptOutcome(how="succeeded", exit_code=0)


def _with_loss(verdict: AttemptOutcome, snapshot: RunSnapshot, attempt: int) -> AttemptOutcome:
    """The failure, with the lost node of the cluster as its origin where it is a consequence of that."""
    failure = verdict.failure
    if failure is None or failure.cause not in CONSEQUENCES:
        return verdict
    pods = snapshot.pods_of(attempt)
    lost = [pod.end.message for pod in pods if pod.is_lost and pod.end is not None]
    there = {pod.node for pod in pods}
    gone = [member for member in members_of(snapshot) if member not in there]
    origin = lost[0] if lost else vanished_on_lost_host(snapshot, gone)
    if not origin:
        return verdict
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    said = f"; {failure.message}" if failure.message and failure.message not in lost else ""
    return _failed(Failure(cause="lost", exit_code=RUN_LOST_EXIT, message=f"{origin}{more}{said}"))


def _weigh(snapshot: RunSnapshot, attempt: int, ends: dict[str, PodEnd]) -> AttemptOutcome:
    job = snapshot.record.job
    if all(node in ends and _is_success(ends[node]) for node in deciding_nodes(job)):
        return AttemptOutcome(how="succeeded", exit_code=0)
    blamed = [(node, end) for node, end in ends.items() if end.cause is not None]
    silent = [end.ended or 0.0 for end in ends.values() if end.reason == NODE_LOST]
    # A rank that fails when a node has fallen silent fails because of that.
    own = [pair for pair in blamed if pair[1].cause not in CONSEQUENCES and _moment(pair[1]) < min(silent, default=inf)]
    for group in (own, *([pair for pair in blamed if pair[1].cause == cause] for cause in CONSEQUENCES)):
        if group:
            node, end = min(group, key=lambda pair: _moment(pair[1]))
            return _failed(_pod_failure(node, end))
    failing = [(node, end) for node, end in ends.items() if end.exit_code]
    if _was_asked(snapshot) and any(end.said is not None and end.said.ended_by == "stop" for end in ends.values()):
        return AttemptOutcome(how="stopped", exit_code=failing[0][1].exit_code if failing else 0)
    missing = [node for node in expected_nodes(job) if node not in ends]
    return _failed(_vanished(snapshot, attempt, missing or expected_nodes(job)))


def _was_asked(snapshot: RunSnapshot) -> bool:
    """Whether a gang that was told to end was meant to, by the user or for another size: its members leave one after
    another, most with an exit code. Else it was told because one of them was dead."""
    return snapshot.stop is not None or snapshot.state.target is not None or not snapshot.state.broken


def _vanished(snapshot: RunSnapshot, attempt: int, missing: Sequence[str]) -> Failure:
    workloads = snapshot.workloads_of(attempt)
    reason = next((workload.failed for workload in workloads if workload.failed), None)
    if not workloads:
        message = "its Jobs were deleted while it ran"
    elif reason:
        message = f"no pod of {listing(missing, 4)} is left: {reason}"
    else:
        message = f"no pod of {listing(missing, 4)} is left, and none says how it ended"
    return Failure(cause="lost", exit_code=RUN_LOST_EXIT, message=message)


def _pod_failure(node: str, end: PodEnd) -> Failure:
    cause = end.cause or "exit"
    rank = end.said.first if end.said is not None else None
    is_named = rank is not None or end.reason == NODE_LOST
    message = end.message if is_named else f"node {node}: {end.message}"
    return Failure(cause=cause, exit_code=exit_code_of(cause, end.exit_code), message=message, rank=rank)


def _failed(failure: Failure) -> AttemptOutcome:
    return AttemptOutcome(how="failed", exit_code=failure.exit_code, failure=failure)


def _is_success(end: PodEnd) -> bool:
    """Ranks that we ended and that left with 0 have not finished their work."""
    said = end.said  # unlike in `first_failure`, no ranks may mean that a long message was cut
    if end.exit_code != 0 or end.cause is not None:
        return False
    return said is None or said.ended_by in (None, "success") or all(rank.ended_by is None for rank in said.ranks)


def _moment(end: PodEnd) -> float:
    said = end.said
    moment = said.ended if said is not None and said.ended is not None else end.ended
    return moment if moment is not None else inf


def _stop_code(verdict: AttemptOutcome, ends: dict[str, PodEnd]) -> int | None:
    """A run that was stopped has the code of its ranks, if any had started."""
    failure = verdict.failure
    if failure is not None and failure.cause not in CONSEQUENCES and failure.cause not in NEVER_STARTED:
        return failure.exit_code
    return stop_code(rank.exit_code for end in ends.values() if end.said is not None for rank in end.said.ranks)


def never_together(pods: PodAttempts, verdict: AttemptOutcome) -> bool:
    """Whether the last attempt of these pods was a restart in place that never came together."""
    failure = verdict.failure
    return pods.is_restarted and pods.running is None and failure is not None and failure.cause in CONSEQUENCES


def close_attempt(snapshot: RunSnapshot, verdict: AttemptOutcome, now: float, had: PodAttempts) -> State:
    """The state with the attempt closed, and those before it in the same pods. `had`: the attempts of its pods."""
    state = snapshot.state
    pods = snapshot.pods_of(state.attempt)
    said = [pod.end.said for pod in pods if pod.end is not None and pod.end.said is not None]
    ends = [node_end.ended for node_end in said if node_end.ended] + [
        pod.end.ended for pod in pods if pod.end and pod.end.ended
    ]
    starts = [node_end.started for node_end in said if node_end.started]
    resumed = next((node_end.resumed_from for node_end in said if node_end.resumed_from), None)
    checkpoint = next((end.checkpoint for end in said if end.checkpoint), None)
    step, metrics = latest_step(rank for pod in pods for rank in ended_ranks(pod))
    # Without ranks that ran it has ended nothing: neither well nor badly, unless there is something to blame.
    is_attempt = not had.is_restarted or had.running is not None or not (never_together(had, verdict) or snapshot.stop)
    attempts = tuple(
        msgspec.structs.replace(
            attempt,
            ended=max(ends, default=now),
            failure=verdict.failure,
            resumed_from=resumed,
            running=had.running or attempt.running,
        )
        if attempt.number == had.last
        else attempt
        for attempt in with_restarts(state.attempts, had, is_last=is_attempt, noted=state.restarted)
    )
    if had.is_restarted:
        starts = [end.running for end in had.earlier.values() if end.attempt == had.first and end.running]
    return msgspec.structs.replace(
        state,
        attempts=attempts,
        restarts=had.last - had.first,
        restarted=(),
        started=min(starts, default=None) if state.attempt == 0 and starts else state.started,
        checkpoint=checkpoint or state.checkpoint,
        step=state.step if step is None else step,
        metrics=state.metrics if step is None else metrics,
        facts=facts_of(snapshot),
    )
