"""Engines by name, made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable

from longboat.core.errors import UsageError
from longboat.engines.engine import Engine

ENGINES = ("local",)


def engine(name: str = "local", *, on_notice: Callable[[str], None] | None = None) -> Engine:
    """The engine with this name. The embedded one keeps its runs in LONGBOAT_HOME, else ~/.longboat.

    `on_notice` is told what the user should know but that stops nothing.
    """
    if name == "local":
        from longboat.engines.local.engine import LocalEngine

        return LocalEngine(on_notice=on_notice)
    raise UsageError(f"no engine named {name!r}", hint=f"one of: {', '.join(ENGINES)}")
