"""Refusals of submissions: every reason at once, one per line, hints that do not contradict each other. Pure.

Which reasons there are is found by the preflight of each engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from longboat.core.elastic.sizes import as_submitted
from longboat.core.errors import NotFound, Refused, UsageError
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.jobs import DataImport, Gpus, Job
from longboat.core.resources import parse_cpus, parse_quantity, show_quantity
from longboat.core.runs import RunStatus
from longboat.core.words import listing

Problem = tuple[str, str | None]
"""A reason, and what would help."""

NEAREST = "nearest that fits: "
_VALUE = lazy_pattern(r"`(nodes|gpus|cpus|memory|disk|shm): ([^`]+)`")


def refusal(head: str, problems: Sequence[Problem]) -> Refused:
    """`head: reason` for one problem; for several a list below the head, and one line for each hint."""
    reasons = list(dict.fromkeys(reason for reason, _ in problems))
    hints = agreed(hint for _, hint in problems if hint)
    text = f": {reasons[0]}" if len(reasons) == 1 else ":" + "".join(f"\n  - {reason}" for reason in reasons)
    return Refused(head + text, hint="\n".join(hints) or None)


def import_problems(item: DataImport) -> list[Problem]:
    from longboat.storage.urls import check_import  # here: few jobs have data

    try:
        check_import(item.url, item.sha256)
    except Refused as error:
        return [(f"`data`: {error.message}", error.hint or "use another address")]
    return []


def gpu_words(wanted: Gpus) -> str:
    parts = [wanted.type or "GPUs"]
    if wanted.memory:
        parts.append(f"with at least {show_quantity(wanted.memory)}")
    return " ".join(parts)


def each_words(wanted: Gpus) -> str:
    """`8`, or `8 H100`: what one node asks for, with the type where one is named."""
    return f"{wanted.count} {gpu_words(wanted)}" if wanted.type or wanted.memory else str(wanted.count)


def no_rank(run: str, rank: int, count: int) -> NotFound:
    hint = f"its ranks are 0 to {count - 1}" if count > 1 else "it has one rank, 0"
    return NotFound(f"{run} has no rank {rank}", hint=hint)


def check_same_job(run: RunStatus, job: Job) -> None:
    """A run id that is given again stands for the same job, or it is a mistake. `job`: as `run.spec` shows jobs."""
    if run.spec is None:
        return
    changed = changed_fields(as_submitted(run.spec), job)
    if changed:
        raise UsageError(
            f"the run {run.name} exists already, of another job: {differing(changed)}",
            hint=f"choose another id, or remove that run first: longboat rm {run.name}",
        )


def differing(fields: Sequence[str]) -> str:
    """`` `nodes`, `labels` differ ``"""
    return listing([f"`{name}`" for name in fields], 8) + (" differs" if len(fields) == 1 else " differ")


def changed_fields(old: Job, new: Job) -> list[str]:
    """What is not the same, as job files call it: `run`, `gpus`, `roles.ps.nodes`."""
    from longboat.specs.dump import job_to_mapping

    def names_of(before: Mapping[str, object], after: Mapping[str, object], place: str = "") -> list[str]:
        names: list[str] = []
        for name in dict.fromkeys((*before, *after)):
            pair = before.get(name), after.get(name)
            if pair[0] == pair[1]:
                continue
            first, second = pair
            is_deeper = (place + name).startswith("roles") and isinstance(first, dict) and isinstance(second, dict)
            names += names_of(first, second, f"{place}{name}.") if is_deeper else [place + name]  # type: ignore[arg-type]
        return names

    return names_of(job_to_mapping(old), job_to_mapping(new))


def missing_path(run: str, path: str) -> NotFound:
    """What `cp` should bring out of a run is not there."""
    hint = "paths are relative to the working copy"
    if path.startswith("artifacts/"):
        hint = f"what `artifacts` named lies in a folder for each node; longboat cp {run}:artifacts . brings all of it"
    return NotFound(f"{path} does not exist in {run}", hint=hint)


def agreed(hints: Iterable[str]) -> list[str]:
    """The hints, each once; several that name the nearest size that fits become one that fits all of them.

    Less always fits where more did, so the least of every field satisfies each of the limits.
    """
    each = list(dict.fromkeys(hints))
    sizes = [hint for hint in each if hint.startswith(NEAREST) and _VALUE.search(hint) and " for role " not in hint]
    if len(sizes) < 2:
        return each
    least: dict[str, str] = {}
    for field, value in (pair for hint in sizes for pair in _VALUE.findall(hint)):
        if field not in least or _amount(field, value) < _amount(field, least[field]):
            least[field] = value
    words = " with ".join(f"`{field}: {value}`" for field, value in least.items())
    asides = [aside for hint in sizes if (aside := _aside(hint)) is not None]
    together = f"{NEAREST}{words}" + "".join(dict.fromkeys(f", or {aside}" for aside in asides))
    return [together, *(hint for hint in each if hint not in sizes)]


def _aside(hint: str) -> str | None:
    """The alternative in a hint: `nodes: 2`, or another queue."""
    aside = hint.rpartition(", or ")[2] if ", or " in hint else None
    return aside if aside and not _VALUE.search(aside) else None


def _amount(field: str, value: str) -> float:
    try:
        return parse_cpus(value) if field in ("nodes", "gpus", "cpus") else float(parse_quantity(value))
    except ValueError:
        return float("inf")
