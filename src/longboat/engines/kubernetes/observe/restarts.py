"""Restarts in place: attempts that shared the pods of an earlier one, from what their launchers say. Pure.

Node 0's launcher restarts failed ranks in the pods they were in (`launcher/pod/restart`). Nobody outside is asked:
the record learns of it when the pods have ended, and a status when it asks the launchers. Whether pods are made anew
is decided elsewhere (`decide`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longboat.core.jobs import Value
from longboat.core.runs import Attempt, Failure, RankReport
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.observe.termination import EarlierEnd, NodeEnd, read_answer
from longboat.engines.kubernetes.records import State

MOST_ATTEMPTS = 1000
"""Retries that a job may ask for. Others write records and last words: no list is made of a number that is larger."""


class PodAttempts(Value, frozen=True):
    """The attempts that some pods had, one after the other."""

    first: int  # whose objects these pods are
    last: int
    earlier: dict[int, EarlierEnd] = {}  # those before the last, as far as known
    began: float | None = None  # when the last one was restarted
    running: float | None = None  # when its ranks started; None: they have not

    @property
    def is_restarted(self) -> bool:
        return self.last > self.first


def attempts_of_pods(snapshot: RunSnapshot, answers: Mapping[str, Mapping[str, Any]] | None = None) -> PodAttempts:
    """Of the pods of the attempt under way, by their last words and by what launchers answered that run."""
    state = snapshot.state
    ends = [pod.end for pod in snapshot.pods_of(state.attempt) if pod.end is not None]
    # Launchers that were all killed said nothing of their ranks: they count as having run, and so does the attempt.
    killed = [end.going for end in ends if end.said is None and end.going is not None]
    words = [end.said for end in ends] + [read_answer(answer) for answer in (answers or {}).values()]
    known_words = [word for word in words if word is not None]
    if not known_words:
        known_words = [msgspec.structs.replace(word, started=word.began) for word in killed]
    known_words += killed
    most = min(snapshot.record.job.retries.last_attempt, state.attempt + MOST_ATTEMPTS)
    pods = _joined(known_words, state.attempt, known=state.attempt + state.restarts, most=most)
    noted = next((known for known in state.restarted if known.number == pods.last), None)
    if noted is None:
        return pods
    return msgspec.structs.replace(pods, began=pods.began or noted.started, running=pods.running or noted.running)


def with_noted(state: State, snapshot: RunSnapshot) -> State:
    """The state with what pods that have ended tell of their attempts. Of a run that is being stopped they may all be
    deleted, and gone before anybody looks again. Each pod has times of its own: what is noted stays so."""
    pods = attempts_of_pods(snapshot)
    noted = {attempt.number: attempt for attempt in state.restarted}
    latest = noted.get(pods.last)
    is_noted = latest is not None and (latest.running is not None or pods.running is None)
    if not pods.earlier or (is_noted and all(number in noted for number in range(pods.first, pods.last))):
        return state
    attempts = with_restarts(state.attempts, pods, noted=state.restarted)
    own = tuple(attempt for attempt in attempts if attempt.number >= pods.first)
    return msgspec.structs.replace(state, restarts=pods.last - pods.first, restarted=own)


def _joined(words: Iterable[NodeEnd], first: int, *, known: int, most: int) -> PodAttempts:
    """Others write what is read here: no number counts that is not one of the job's retries."""
    words = [word for word in words if first <= word.attempt <= most]
    last = max([first, min(known, most), *(word.attempt for word in words)])
    latest = [word for word in words if word.attempt == last]
    ends = {end.attempt: end for word in words for end in word.restarts if first <= end.attempt < last}
    return PodAttempts(
        first=first,
        last=last,
        earlier=ends,
        began=min((word.began for word in latest if word.began), default=None),
        running=min((word.started for word in latest if word.started), default=None),
    )


def with_restarts(
    attempts: Iterable[Attempt], pods: PodAttempts, *, is_last: bool = True, noted: Iterable[Attempt] = ()
) -> tuple[Attempt, ...]:
    """The run's attempts with those that were restarted in place, of which the last is open; without it where it is
    not to count (`is_last`). `noted`: attempts as they were told before, of which the pods say nothing any more."""
    attempts = tuple(attempts)
    before = {attempt.number: attempt for attempt in noted}
    if not pods.is_restarted:
        return attempts
    known = [attempt for attempt in attempts if attempt.number < pods.first]
    first = next((attempt for attempt in attempts if attempt.number == pods.first), None)
    moment = first.started if first is not None else 0.0
    for number in range(pods.first, pods.last):
        if number not in pods.earlier and number in before:
            moment = before[number].ended or pods.began or before[number].started
            known.append(msgspec.structs.replace(before[number], ended=moment))
            continue
        end = pods.earlier.get(number, EarlierEnd(attempt=number))
        own = _restarted(number, end.began or moment, end.running, pods)
        attempt = first if number == pods.first and first is not None else own
        moment = end.ended or attempt.started
        known.append(
            msgspec.structs.replace(
                attempt, ended=moment, failure=_failure(end), resumed_from=end.resumed_from or attempt.resumed_from
            )
        )
    if is_last:
        own = _restarted(pods.last, pods.began or moment, pods.running, pods)
        known.append(own if pods.last - 1 in pods.earlier else before.get(pods.last, own))
    return tuple(known)


def _restarted(number: int, started: float, running: float | None, pods: PodAttempts) -> Attempt:
    end = pods.earlier.get(number - 1)
    replaced, spares = (end.replaced, end.spares) if end is not None else ((), {})
    return Attempt(
        number=number, started=started, restart="in-place", replaced=replaced, spares=spares, running=running
    )


def _failure(end: EarlierEnd) -> Failure | None:
    if end.cause is None or end.exit_code is None:
        return None
    rank = None
    if end.rank is not None and end.rank >= 0:
        node = end.node or ""
        rank = RankReport(
            rank=end.rank,
            role=node.rpartition("-")[0],
            node=node,
            exit_code=end.exit_code,
            signal=end.signal,
            ended=end.ended or 0.0,
            cause=end.cause,
            message=end.message,
            step=end.step,
        )
    return Failure(cause=end.cause, exit_code=end.exit_code, message=end.message, rank=rank)
