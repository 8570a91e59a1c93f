"""Errors as Python users see them: the message with its place and hint, and no frames of Longboat's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from longboat.core.errors import JobError, LongboatError

P = ParamSpec("P")
T = TypeVar("T")


def readable(error: LongboatError) -> str:
    """Every problem on its own line, each hint below it, as on the command line."""
    if not isinstance(error, JobError):
        return _hinted(error.message, error.hint)
    lines = [_hinted(str(problem), problem.hint) for problem in error.problems]
    return _hinted("\n".join(lines), error.hint)


def _hinted(text: str, hint: str | None) -> str:
    return f"{text}\nhint: {hint}" if hint else text


def plain_lines(lines: Iterator[T]) -> Iterator[T]:
    """The same for what is read piece by piece."""
    try:
        yield from lines
    except LongboatError as error:
        error.args = (readable(error),)
        raise error.with_traceback(None) from None


def plain_errors(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose errors say all that the command line says; the way to them is of no use to the caller."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except LongboatError as error:
            error.args = (readable(error),)
            raise error.with_traceback(None) from None

    return call
