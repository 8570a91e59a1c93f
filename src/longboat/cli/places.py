"""The engine a command talks to; its notices become messages."""

from __future__ import annotations

from longboat.cli.terminal import note
from longboat.engines.engine import Engine
from longboat.sdk.engines import engine


def open_engine(name: str = "local", *, quiet: bool = False) -> Engine:
    """The engine, with each of its notices shown once."""
    shown: set[str] = set()

    def tell(text: str) -> None:
        if text not in shown:
            shown.add(text)
            note(text)

    return engine(name, on_notice=None if quiet else tell)
