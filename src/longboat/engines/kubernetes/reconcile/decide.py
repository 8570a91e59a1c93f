"""Decides what comes next for a run: a RunSnapshot and the time in, a Decision out. Pure; `apply` does it,
`attempt_outcome` judges.

A Decision is carried out by any process at any time, so every action can be repeated: the state is written first, at
the version that was seen; then the actions; then `after`, which notes that they were done. An attempt follows another
only when nothing of that one runs any more.
"""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from longboat.core.elastic.sizes import is_elastic
from longboat.core.errors import RUN_LOST_EXIT
from longboat.core.runs import Failure
from longboat.engines.kubernetes.gate.departure import departing, reason_of
from longboat.engines.kubernetes.gate.resizing import gate_look_at, resized, without_wish
from longboat.engines.kubernetes.observe.node_loss import (
    digests_of,
    first_doubt,
    noted_hosts,
    silence_words,
    with_losses,
)
from longboat.engines.kubernetes.observe.progress import Progress, awaited_members, members_of, progress_of
from longboat.engines.kubernetes.observe.restarts import attempts_of_pods, with_noted
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import (
    Action,
    Admit,
    CreateAttempt,
    Decision,
    Delete,
    DeleteWorkloads,
    ForceDelete,
    Release,
    SendStop,
)
from longboat.engines.kubernetes.reconcile.attempt_outcome import close_attempt, is_over, judge, never_together
from longboat.engines.kubernetes.reconcile.chain import hold_back
from longboat.engines.kubernetes.reconcile.handover import GIVEN_UP, handover_due, is_made, opened
from longboat.engines.kubernetes.reconcile.survivors import (
    TELL_S,
    dead_members,
    end_survivors,
    is_going,
    pods_to_stop,
    settling_s,
    size_actions,
    survivor_deadline,
    with_told,
)
from longboat.engines.kubernetes.records import State
from longboat.engines.shared.retry_policy import describe, retry_after, retry_note, start_failure, stop_note
from longboat.storage.fences import fenced_by

SUSPICIOUS_S = 5.0
"""How often we look at a node that may be lost."""
STARTING_LOOK_S = 3.0  # a mount that fails says so within seconds; after ten looks, a tenth as often
TROUBLE_S = 20.0  # a Secret, or an image's name, that comes a moment after the pod is no failure
SLOW_TROUBLE_S = 600.0
"""How long a container may fail to start: when somebody must mend it, and when it may mend itself."""


def decide(snapshot: RunSnapshot, now: float) -> Decision:
    turn = _turn(snapshot, now)
    if turn.state is None or turn.state == snapshot.state:  # a digest that is told is no reason to write
        return msgspec.structs.replace(turn, state=None)
    return msgspec.structs.replace(turn, state=_replace(turn.state, digests=digests_of(snapshot)))


def _turn(snapshot: RunSnapshot, now: float) -> Decision:
    if snapshot.is_deleting:
        return Decision()
    snapshot = with_losses(snapshot, now)
    return _with_fences(_next(snapshot, now), snapshot, now)


def _next(snapshot: RunSnapshot, now: float) -> Decision:
    state = snapshot.state
    if state.is_final:
        return Decision(actions=_remains(snapshot))
    attempt = state.attempt
    is_open = any(known.number == attempt for known in state.attempts)
    if not is_open and not is_made(snapshot):
        return _between(snapshot, now)
    if not is_open:
        snapshot = msgspec.structs.replace(snapshot, state=opened(snapshot))
    if is_over(snapshot, attempt) and not _is_waiting(snapshot):
        return _concluded(snapshot, now)
    return _stopping(snapshot, now) if snapshot.stop is not None else _continue_attempt(snapshot, now)


def _remains(snapshot: RunSnapshot) -> tuple[Action, ...]:
    """A slow process may have made an attempt after another one had ended the run.

    An attempt with pods on lost nodes keeps the others, with their logs, but no place in a queue.
    """
    left = {
        workload.attempt
        for workload in snapshot.workloads
        if not (workload.failed or workload.is_complete or workload.is_deleting)
    }
    going = tuple(DeleteWorkloads(attempt=attempt) for attempt in sorted(left) if not is_over(snapshot, attempt))
    if snapshot.record.gated_by != "kueue":
        return going
    return (*going, *_discards(snapshot, left & {snapshot.state.attempt}))


def _discards(snapshot: RunSnapshot, attempts: set[int]) -> tuple[Action, ...]:
    """The workloads of attempts that are over, and whose pods on lost nodes would never leave them."""
    lost = {pod.attempt for pod in snapshot.pods if pod.is_lost}
    there = {workload.attempt for workload in snapshot.workloads if not workload.is_deleting}
    return tuple(DeleteWorkloads(attempt=attempt, is_lost=True) for attempt in sorted(attempts & lost & there))


def _earlier(snapshot: RunSnapshot) -> tuple[Action, ...]:
    """Delete leftovers of an earlier, lost attempt: its pods hold claims and devices while they exist."""
    earlier = [workload for workload in snapshot.workloads if workload.attempt < snapshot.state.attempt]
    unused = {each.attempt for each in earlier if each.is_suspended and not (each.is_complete or each.is_deleting)}
    unused = unused if is_elastic(snapshot.record.job) else set()  # they waited with another size
    lost = _discards(snapshot, {workload.attempt for workload in earlier} - unused)
    return (*lost, *(DeleteWorkloads(attempt=attempt) for attempt in sorted(unused)))


def _is_waiting(snapshot: RunSnapshot) -> bool:
    """Suspended, and so without pods, because it waits to be let in."""
    workloads = snapshot.workloads_of(snapshot.state.attempt)
    return bool(workloads) and all(workload.is_suspended for workload in workloads) and not snapshot.stop


def _between(snapshot: RunSnapshot, now: float) -> Decision:
    """No attempt is under way: before the first, or before the next."""
    state = snapshot.state
    if any(pod.end is None for pod in snapshot.pods) or any(is_going(pod, now) for pod in snapshot.late):
        return Decision(actions=_earlier(snapshot), again_at=now + SUSPICIOUS_S)
    if snapshot.stop is not None:
        failures = [attempt.failure for attempt in state.attempts if attempt.failure is not None]
        reason = "stopped before its next attempt" if failures else stop_note(state.started)
        return _finished(snapshot, now, "stopped", failures[-1].exit_code if failures else None, reason)
    if now < state.not_before:
        return Decision(actions=_earlier(snapshot), again_at=state.not_before)
    if state.attempt == 0:
        due = handover_due(snapshot)
        return (
            Decision(again_at=due) if now < due else _finished(snapshot, now, "failed", RUN_LOST_EXIT, GIVEN_UP, "lost")
        )
    return Decision(actions=(*_earlier(snapshot), CreateAttempt(attempt=state.attempt)))


def _continue_attempt(snapshot: RunSnapshot, now: float) -> Decision:
    """The attempt waits, starts or runs."""
    state, attempt = snapshot.state, snapshot.state.attempt
    workloads = snapshot.workloads_of(attempt)
    sentence = next((known.failure for known in state.attempts if known.number == attempt), None)
    trouble, again = _trouble(snapshot, now)
    if sentence is None and trouble is not None:
        state, sentence = _with_failure(state, trouble), trouble
    if sentence is not None:
        return Decision(state=state, actions=_removal(snapshot), again_at=now + SUSPICIOUS_S)
    progress = progress_of(snapshot)
    if snapshot.record.gated_by == "longboat" and any(workload.is_suspended for workload in workloads):
        held = hold_back(snapshot, now)
        if held is not None and held.failure is not None:
            failed = _with_failure(held.state, held.failure)
            return Decision(state=failed, actions=_removal(snapshot), again_at=now + SUSPICIOUS_S)
        if held is not None and held.state.released:
            return Decision(actions=(Release(attempt=attempt),), after=held.state)
        if held is not None:
            return Decision(state=held.state, again_at=held.again_at)
        new = _replace(state, phase=_phase(state, "pending"))
        return Decision(state=new, actions=(Admit(attempt=attempt),), again_at=state.gate.not_before)
    if _was_taken_back(snapshot):
        failure = Failure(
            cause="preemption", exit_code=RUN_LOST_EXIT, message=progress.reason or "the queue took it back"
        )
        new = _with_failure(state, failure)
        return Decision(state=new, actions=_removal(snapshot), again_at=now + SUSPICIOUS_S)
    new = _progressed(state, progress, snapshot)
    new = departing(new, snapshot, now) if progress.phase == "running" else new
    if not state.broken and dead_members(snapshot):
        new = _replace(new, broken=now)
    elif state.broken and not dead_members(snapshot):
        new = _replace(new, broken=0.0)  # the one that was dead has another pod
    noted = {"broken": new.broken, "departure": new.departure, "wanted": new.wanted, "seen": new.seen}
    snapshot = msgspec.structs.replace(snapshot, state=_replace(state, **noted))
    back = _put_back_at(snapshot, progress)
    actions, told_again = size_actions(snapshot, now)
    actions = (Admit(attempt=attempt),) if back is not None and back <= now else actions
    hurry = survivor_deadline(snapshot)
    if hurry is not None and now >= hurry.drop_at and all(pod.end for pod in snapshot.pods_of(attempt)):
        return _given_up(snapshot, now)
    hurried, late = end_survivors(snapshot, now)
    looks = (again, back, late, told_again, _starting_look(snapshot, progress, now))
    times = [look for look in looks if look is not None]
    after = with_told(new, hurried, now)
    return Decision(state=new, actions=(*actions, *hurried), after=after, again_at=min(times, default=None))


def _given_up(snapshot: RunSnapshot, now: float) -> Decision:
    """End an attempt of which nothing runs any more although its workload has not ended: judged as observed now."""
    failure = judge(snapshot, snapshot.state.attempt).failure
    if failure is None:
        return _concluded(snapshot, now)  # node 0 has said that all is well
    state = _with_failure(_replace(snapshot.state, restarts=_restarts(snapshot)), failure)
    return Decision(state=state, actions=_removal(snapshot), again_at=now + SUSPICIOUS_S)


def _restarts(snapshot: RunSnapshot) -> int:
    pods = attempts_of_pods(snapshot)
    return pods.last - pods.first


def _starting_look(snapshot: RunSnapshot, progress: Progress, now: float) -> float | None:
    """A container that a volume keeps from starting changes nothing in its pod: only looking again shows it."""
    if progress.phase != "starting":
        return None
    newest = max((pod.created for pod in snapshot.pods_of(snapshot.state.attempt)), default=now)
    return now + (STARTING_LOOK_S if now - newest < 10 * STARTING_LOOK_S else 10 * STARTING_LOOK_S)


def _put_back_at(snapshot: RunSnapshot, progress: Progress) -> float | None:
    """When the gate has to look at a gang that it let in and that does not get going."""
    gate = snapshot.state.gate
    if progress.is_complete:
        return gate_look_at(snapshot)
    if snapshot.record.gated_by != "longboat" or gate.let_in is None:
        return None
    return max(gate.not_before, gate.let_in)


def _was_taken_back(snapshot: RunSnapshot) -> bool:
    """The queue suspended a gang that had started."""
    state = snapshot.state
    workloads = snapshot.workloads_of(state.attempt)
    if snapshot.record.gated_by != "kueue" or not workloads or not all(workload.is_suspended for workload in workloads):
        return False
    return state.phase == "running" or (snapshot.queue is not None and snapshot.queue.is_evicted)


def _phase(state: State, phase: str) -> str:
    return "recovering" if state.attempt and phase in ("pending", "starting") else phase


def _progressed(state: State, progress: Progress, snapshot: RunSnapshot) -> State:
    reason = silence_words(snapshot) or progress.reason or reason_of(snapshot)
    if state.attempt and progress.phase != "running" and not reason:
        reason = state.reason
    return _replace(
        state,
        phase=_phase(state, progress.phase),
        reason=reason,
        started=state.started or progress.started,
        hosts=noted_hosts(state, snapshot) if progress.phase == "running" else state.hosts,
        cause=None if progress.phase == "running" else state.cause,
        restarts=_restarts(snapshot),
    )


def _trouble(snapshot: RunSnapshot, now: float) -> tuple[Failure | None, float | None]:
    """A container that cannot start ends the attempt once it is clear; else when that will be."""
    late: list[tuple[float, PodView]] = []
    members = set(members_of(snapshot))
    for pod in snapshot.pods_of(snapshot.state.attempt):
        if pod.node in members and pod.trouble is not None and pod.end is None and not pod.is_started:
            patience = TROUBLE_S if pod.trouble.is_final else SLOW_TROUBLE_S
            late.append((pod.created + patience, pod))
    if not late:
        return None, None
    due, pod = min(late, key=lambda pair: pair[0])
    if due > now or pod.trouble is None:
        return None, due
    hint = f" ({pod.trouble.hint})" if pod.trouble.hint else ""
    return start_failure(pod.trouble.cause or "setup", f"node {pod.node}: {pod.trouble.what}{hint}"), None


def _with_failure(state: State, failure: Failure) -> State:
    """The failure is noted before what shows it is removed."""
    attempts = tuple(
        msgspec.structs.replace(attempt, failure=failure) if attempt.number == state.attempt else attempt
        for attempt in state.attempts
    )
    return _replace(state, attempts=attempts)


def _removal(snapshot: RunSnapshot, grace_s: float | None = None) -> tuple[Action, ...]:
    attempt = snapshot.state.attempt
    left = [workload for workload in snapshot.workloads_of(attempt) if not workload.is_deleting]
    return (DeleteWorkloads(attempt=attempt, grace_s=grace_s),) if left else ()


def _stopping(snapshot: RunSnapshot, now: float) -> Decision:
    """The user asked for a stop, and something of the attempt is there."""
    assert snapshot.stop is not None
    state, job = snapshot.state, snapshot.record.job
    grace = job.grace_s if snapshot.stop.grace_s is None else snapshot.stop.grace_s
    pods = {pod.node: pod for pod in snapshot.pods_of(state.attempt)}
    noted = with_noted(_replace(state, reason="is being stopped"), snapshot)
    awaited = set(awaited_members(snapshot))
    members = members_of(snapshot)
    have_started = all(node in awaited or (node in pods and pods[node].is_started) for node in members)
    late = [pod for pod in pods.values() if pod.node in awaited and pod.deleting_since is None]
    drops = tuple(Delete(pod=pod.name, uid=pod.uid) for pod in late)  # nobody waits for their starts any more
    if not have_started:  # no rank has started: that takes all of them
        return Decision(state=noted, actions=_removal(snapshot, grace), again_at=now + SUSPICIOUS_S)
    if state.told != snapshot.stop.at:
        left = [pod for pod in pods.values() if pod.end is None and pod not in late]
        noted_stop = _replace(noted, told=snapshot.stop.at, told_when=now)
        actions = tuple(SendStop(pod=pod.name, grace_s=grace) for pod in pods_to_stop(left, snapshot))
        return Decision(state=noted, actions=(*actions, *drops), after=noted_stop, again_at=now + grace + TELL_S)
    deadline = state.told_when + grace + TELL_S
    if now < deadline:
        return Decision(state=noted, actions=drops, again_at=deadline)
    return Decision(state=noted, actions=_removal(snapshot, 0.0), again_at=now + SUSPICIOUS_S)


def _with_fences(turn: Decision, snapshot: RunSnapshot, now: float) -> Decision:
    """Pods of lost nodes are deleted by force; nodes that may be lost are looked at again."""
    fences: list[Action] = [
        ForceDelete(pod=pod.name, uid=pod.uid) for pod in snapshot.pods if pod.is_lost and not pod.is_forced
    ]
    late = [pod for pod in snapshot.late if pod.end is None and pod.deleting_since is None]
    fences += [Delete(pod=pod.name, uid=pod.uid) for pod in late]
    again = turn.again_at
    doubt = first_doubt(snapshot)
    if doubt is not None and now <= doubt:
        again = min(again or inf, doubt + 0.1)
    for pod in snapshot.pods:
        host = snapshot.hosts.get(pod.host or "")
        is_doubtful = pod.is_unready or pod.deleting_since is not None or (host and host.not_ready_since is not None)
        if pod.end is None and is_doubtful:
            again = min(again or now + SUSPICIOUS_S, now + SUSPICIOUS_S)
    return msgspec.structs.replace(turn, actions=(*fences, *turn.actions), again_at=again)


def _concluded(snapshot: RunSnapshot, now: float) -> Decision:
    """The attempt is over: the run has ended, or is tried again."""
    verdict = judge(snapshot, snapshot.state.attempt)
    settling = settling_s(snapshot, now)
    pods = attempts_of_pods(snapshot)
    is_anew = never_together(pods, verdict)
    state = close_attempt(snapshot, verdict, now, pods)
    failure, retries = verdict.failure, snapshot.record.job.retries
    snapshot = msgspec.structs.replace(snapshot, state=state)
    if verdict.how == "succeeded":
        return _finished(snapshot, now, "succeeded", 0, "")
    if verdict.how == "stopped" and state.target is not None and snapshot.stop is None:
        again = resized(state, pods.last, now)
        return Decision(state=again, actions=_earlier(msgspec.structs.replace(snapshot, state=again)), again_at=now)
    if verdict.how == "stopped" or failure is None:
        code = verdict.code_when_stopped(state.attempts, pods)
        return _finished(snapshot, now, "stopped", code, stop_note(state.started if code is None else now))
    # A restart in place that did not come together costs no retry: the same attempt gets new pods.
    number = pods.last if is_anew else pods.last + 1
    delay = 0.0 if is_anew else retry_after(failure, attempt=pods.last, retries=retries)
    newer = fenced_by(failure.message) if failure.cause == "setup" else None
    if newer is not None and newer >= pods.last:
        # Pods that were lost without a word had been restarted in place: the number after theirs is the next.
        number, delay = newer + 1, 0.0 if newer < retries.last_attempt else None
    if delay is None:
        return _finished(snapshot, now, "failed", failure.exit_code, describe(failure), failure.cause)
    delay = max(delay, settling)
    note = retry_note(failure, number=number, retries=retries)
    again = _replace(
        state, phase="recovering", reason=note, attempt=number, cause=failure.cause, not_before=now + delay
    )
    again = _replace(without_wish(again), gate=type(again.gate)(), broken=0.0, hosts={}, restarts=0)
    snapshot = msgspec.structs.replace(snapshot, state=again)
    return Decision(state=again, actions=_earlier(snapshot), again_at=now + delay)


def _finished(
    snapshot: RunSnapshot, now: float, phase: str, exit_code: int | None, reason: str, cause: str | None = None
) -> Decision:
    state = snapshot.state
    ended = max([attempt.ended for attempt in state.attempts if attempt.ended is not None], default=now)
    ended = ended if phase != "stopped" or state.attempts else now
    final = _replace(state, phase=phase, exit_code=exit_code, reason=reason, cause=cause, ended=ended)
    return Decision(state=final, actions=_remains(snapshot))


def _replace(state: State, **changes: Any) -> State:
    return msgspec.structs.replace(state, **changes)
