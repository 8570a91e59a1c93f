"""Checks of what Python users give: a wrong kind of value is named where it was given, with what is expected. Pure, as
is the check that a run has what a query of its log names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from longboat.core.errors import NotFound, UsageError
from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.refusals import no_rank
from longboat.engines.shared.logfiles import matcher


def wrong(name: str, value: object, expected: str) -> UsageError:
    return UsageError(f"{name}: found {_kind(value)}, expected {expected}")


def _kind(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} {value!r}"[:80]


def text_of(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong(name, value, "text")
    return value


def path_of(name: str, value: object) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise wrong(name, value, "a path")
    return os.fspath(value)


def seconds_of(name: str, value: object) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and value >= 0):  # type: ignore[operator]
        raise wrong(name, value, "seconds, or None")
    return value  # type: ignore[return-value]


def list_of(name: str, values: object, kind: type[Any], expected: str) -> tuple[Any, ...]:
    """A list and not one value: text would be taken letter by letter."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise wrong(name, values, f"a list of {expected}")
    items = tuple(values)
    strange = [item for item in items if not isinstance(item, kind) or isinstance(item, bool)]
    if strange:
        raise wrong(name, strange[0], f"a list of {expected}")
    return items


def check_query(run: RunStatus, query: LogQuery) -> None:
    """A rank, role or attempt that the run does not have would give nothing, and look like an empty log."""
    matcher(query)
    most = run.retries + 1 if query.follow and not run.is_final else run.attempt + 1
    if query.attempt is not None and query.attempt >= most:
        hint = f"its attempts are 1 to {most}" if most > 1 else "it has one attempt"
        raise NotFound(f"{run.name} has no attempt {query.attempt + 1}", hint=hint)
    if run.spec is None:
        return
    count, roles = run.spec.ranks, [role.name for role in run.spec.roles]
    for rank in query.ranks:
        if not 0 <= rank < count:
            raise no_rank(run.name, rank, count)
    for role in query.roles:
        if role not in roles:
            raise NotFound(f"{run.name} has no role {role!r}", hint=f"its roles: {', '.join(roles)}")
