"""The timeline of a run: queued, pulling, setup, training, recovering, with times and reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from longboat.core.jobs import Value
from longboat.core.runs import Attempt, PhaseSpan, RunStatus, TimelinePhase


class AttemptMarks(Value, frozen=True):
    """When an attempt got further, as far as an engine has seen it."""

    pulled: float | None = None  # the containers of all its nodes run: images are there
    trained: float | None = None  # its first rank was started


def with_timeline(run: RunStatus, marks: Mapping[int, AttemptMarks], *, pulls: bool = False) -> RunStatus:
    """A run in full with its timeline. `pulls`: its nodes are containers, which begin with their images."""
    return msgspec.structs.replace(run, timeline=timeline_of(run, marks, pulls=pulls))


def timeline_of(run: RunStatus, marks: Mapping[int, AttemptMarks], *, pulls: bool = False) -> tuple[PhaseSpan, ...]:
    """Spans without gaps, in order; the last of a run that goes on has no end. What nobody has seen is left out:
    the span before it lasts longer."""
    spans: list[PhaseSpan] = []
    since, reason = run.created, ""
    for attempt in run.attempts:
        waiting: TimelinePhase = "recovering" if spans and attempt.number else "queued"
        began = max(since, attempt.started)
        spans.append(_span(waiting, since, began, attempt.number, reason))
        end = attempt.ended if attempt.ended is not None else run.ended
        end = None if end is None else max(began, end)
        is_current = attempt is run.attempts[-1]
        seen = _marks_of(run, attempt, marks.get(attempt.number, AttemptMarks()))
        spans += _attempt_spans(attempt, seen, began, end, starting=_starting_phase(run, pulls) if is_current else None)
        since = began if end is None else end
        reason = attempt.failure.message if attempt.failure is not None else ""
    if not spans or (not run.is_final and spans[-1].ended is not None):
        number = run.attempts[-1].number + 1 if run.attempts else 0
        spans.append(_span("recovering" if run.attempts else "queued", since, run.ended, number, reason))
    kept = [span for span in spans if span.ended is None or span.ended > span.started] or spans[-1:]
    if kept[-1].ended is None and run.reason:
        kept[-1] = msgspec.structs.replace(kept[-1], reason=run.reason)
    return tuple(kept)


def _span(phase: TimelinePhase, started: float, ended: float | None, attempt: int, reason: str = "") -> PhaseSpan:
    return PhaseSpan(phase=phase, started=started, ended=ended, attempt=attempt, reason=reason)


def _starting_phase(run: RunStatus, pulls: bool) -> TimelinePhase | None:
    """What an attempt whose ranks were never seen is at."""
    if run.phase not in ("starting", "pending"):
        return None
    return "pulling" if pulls else "setup"


def _marks_of(run: RunStatus, attempt: Attempt, seen: AttemptMarks) -> AttemptMarks:
    if attempt.number == 0 and seen.trained is None and run.started is not None:
        return msgspec.structs.replace(seen, trained=run.started)
    return seen


def _attempt_spans(
    attempt: Attempt, seen: AttemptMarks, began: float, end: float | None, *, starting: TimelinePhase | None
) -> list[PhaseSpan]:
    spans, since = [], began
    pulled, trained = _inside(seen.pulled, began, end), _inside(seen.trained, began, end)
    if pulled is not None:
        spans.append(_span("pulling", since, pulled, attempt.number))
        since = pulled
    if starting is not None:
        spans.append(_span("setup" if pulled is not None else starting, since, end, attempt.number))
        return spans
    if trained is not None:
        spans.append(_span("setup", since, max(since, trained), attempt.number))
        since = max(since, trained)
    spans.append(_span("training", since, end, attempt.number))
    return spans


def _inside(moment: float | None, began: float, end: float | None) -> float | None:
    """Clocks of machines differ: a moment outside of its attempt is one at its edge."""
    if moment is None:
        return None
    return max(began, moment if end is None else min(moment, end))
