"""Post-mortems in words, the same on every engine: first culprit, cause, the lines that show it, what to do next.

Pure. What only one engine can know (a pod's fate, a node's pressure) is added by that engine.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from longboat.core.resources import show_quantity
from longboat.core.runs import Attempt, Explanation, Failure, RankReport, RunStatus
from longboat.core.words import counted, listing
from longboat.engines.shared.advice import ADVICE, next_steps

_SILENT_S = 600.0  # ten minutes: evaluations and large checkpoints are over by then
_LONG = 240
"""Characters of a message in the headline; the lines below it have the rest."""


Holder = TypeVar("Holder")


def fewest(holders: Sequence[Holder], is_enough: Callable[[Sequence[Holder]], bool]) -> list[Holder]:
    """The first of these whose ends are enough together, without those that do not matter; none: all are too few."""
    number = next((size for size in range(1, len(holders) + 1) if is_enough(holders[:size])), 0)
    chosen = list(holders[:number])
    for holder in holders[: max(number - 1, 0)]:  # the last of them was needed
        others = [each for each in chosen if each is not holder]
        if is_enough(others):
            chosen = others
    return chosen


def shortened(text: str, limit: int) -> str:
    """Cut a message at a word."""
    return text if len(text) <= limit else text[:limit].rpartition(" ")[0] + " ..."


def with_cause(cause: str, message: str) -> str:
    """Prefix a message with its cause, unless it begins with it: `exception: ValueError: ...`."""
    return message if message.startswith(f"{cause} ") else f"{cause}: {message}"


def explain_status(
    status: RunStatus,
    failure: Failure | None,
    setup_log: tuple[str, ...],
    advice: Mapping[str, str] = ADVICE,
) -> Explanation:
    """Explain a run's status in words. `advice`: next steps by cause, where an engine knows better."""
    if status.phase == "succeeded":
        return _explanation(status, "it succeeded", facts=(*status.findings, *_attempt_facts(status)))
    if status.phase == "stopped":
        facts = (*status.findings, *_attempt_facts(status))
        return _explanation(status, f"it was stopped: {status.reason}", facts=facts)
    if status.phase == "failed" and failure is not None:
        return _post_mortem(status, failure, setup_log, advice)
    if status.phase == "failed":
        return _explanation(status, status.reason, cause=status.cause, next_steps=(f"longboat logs {status.name}",))
    if status.phase == "running":
        return _running(status)
    headline = f"it is {status.phase}" + (f": {status.reason}" if status.reason else "")
    steps = ("longboat ps", f"longboat stop {status.name}") if status.phase == "pending" else ()
    return _explanation(status, headline, facts=_attempt_facts(status), next_steps=steps)


def with_openings(explanation: Explanation, openings: tuple[str, ...]) -> Explanation:
    """What would let a waiting run in, before what can always be done."""
    return msgspec.structs.replace(explanation, next_steps=(*openings, *explanation.next_steps))


def _explanation(
    status: RunStatus,
    headline: str,
    *,
    cause: str | None = None,
    facts: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
    next_steps: tuple[str, ...] = (),
) -> Explanation:
    return Explanation(
        run=status.name,
        phase=status.phase,
        headline=headline,
        cause=cause,
        facts=facts,
        lines=lines,
        next_steps=next_steps,
    )


def _running(status: RunStatus) -> Explanation:
    silent = [rank for rank in status.ranks if rank.silent_s is not None and rank.silent_s > _SILENT_S]
    facts = tuple(
        f"rank {rank.rank} ({rank.node}): no step and no output for {int((rank.silent_s or 0) // 60)} min"
        for rank in silent
    )
    headline = "it is running, but some ranks are silent" if silent else "it is running"
    headline += _size_words(status)
    headline += f": {status.reason}" if status.reason else ""
    facts = (*status.findings, *facts)
    if status.findings and not silent and not status.reason:
        headline = "it is running, and something is to be looked at"
    steps = ("set `stall` in the job file to have hung ranks ended with their Python stacks",) if silent else ()
    return _explanation(status, headline, facts=(*facts, *_attempt_facts(status)), next_steps=steps)


def _size_words(status: RunStatus) -> str:
    """Of an elastic run, how large it is and why."""
    if not status.size:
        return ""
    return f" with {status.size}" + (f" ({status.size_reason})" if status.size_reason else "")


def _post_mortem(
    status: RunStatus, failure: Failure, setup_log: tuple[str, ...], advice: Mapping[str, str]
) -> Explanation:
    rank = failure.rank
    where = f"rank {rank.rank} on node {rank.node} failed first: " if rank is not None else ""
    facts = [f"exit code {failure.exit_code}", *_rank_facts(rank), *status.findings, *_attempt_facts(status)]
    return _explanation(
        status,
        where + _in_words(failure),
        cause=failure.cause,
        facts=tuple(facts),
        lines=_lines(failure, setup_log),
        next_steps=next_steps(status, failure, advice),
    )


def _in_words(failure: Failure) -> str:
    rank = failure.rank
    message = shortened(failure.message, _LONG)
    if failure.cause == "signal" and rank is not None and rank.signal:
        return f"killed by signal {rank.signal} ({_signal_name(rank.signal)})"
    if failure.cause == "oom":
        if rank is not None and rank.memory_limit and rank.memory_peak:
            peak, limit = show_quantity(rank.memory_peak), show_quantity(rank.memory_limit)
            return f"out of memory: {peak} used, the limit is {limit}"
        return f"out of memory: {message}"
    if failure.cause == "exit":
        return message or f"exit code {failure.exit_code}"
    return with_cause(failure.cause, message) if message else failure.cause


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _rank_facts(rank: RankReport | None) -> list[str]:
    if rank is None:
        return []
    facts = []
    if rank.step is not None:
        facts.append(f"last step {rank.step}")
    if rank.memory_peak:
        facts.append(f"peak memory {show_quantity(rank.memory_peak)}")
    if rank.started and rank.ended:
        facts.append(f"it had run for {rank.ended - rank.started:.1f} s")
    return facts


def _attempt_facts(status: RunStatus) -> tuple[str, ...]:
    if len(status.attempts) < 2:
        return ()
    facts = []
    for attempt in status.attempts:
        how = attempt.failure.cause if attempt.failure else attempt.resized
        how = how or ("still going" if attempt.ended is None else "ended well")
        start = restart_words(attempt, status.attempts)
        start = f", {start}" if start else ""
        start += f", resumed from {attempt.resumed_from.rpartition('/')[2]}" if attempt.resumed_from else ""
        size = f" with {counted(attempt.size, 'node')}" if attempt.size is not None else ""
        facts.append(f"attempt {attempt.number + 1}{size}: {how}{start}")
    return tuple(facts)


def restart_words(attempt: Attempt, attempts: Iterable[Attempt]) -> str:
    """How a retry was started, and how long after the failure its ranks ran; empty for a first attempt."""
    if not attempt.restart:
        return ""
    way = "restarted in place" if attempt.restart == "in-place" else "started anew"
    spared = [f"{spare} in the place of {node}" for node, spare in sorted(attempt.spares.items())]
    replaced = [node for node in attempt.replaced if node not in attempt.spares]
    changes = [f"the spare {listing(spared, 3)}"] if spared else []
    changes += [f"{listing(replaced, 3)} replaced"] if replaced else []
    if changes:
        way = f"{' and '.join(changes)}, the others {way}"
    before = max((each for each in attempts if each.ended and each.number < attempt.number), key=_end, default=None)
    if before is None or attempt.running is None:
        return way
    reason = "the end of the one before" if before.resized else "the failure"
    return f"{way} {max(0.0, attempt.running - _end(before)):.1f} s after {reason}"


def _end(attempt: Attempt) -> float:
    return attempt.ended or 0.0


def _lines(failure: Failure, setup_log: tuple[str, ...]) -> tuple[str, ...]:
    rank = failure.rank
    if failure.cause == "setup":
        return setup_log
    if rank is None:
        return failure.tail[-10:]
    if failure.cause == "hang" and rank.stacks:
        return tuple(rank.stacks.splitlines()[:40])
    if rank.traceback:
        return tuple(rank.traceback.splitlines()[-20:])
    return rank.tail[-10:]
