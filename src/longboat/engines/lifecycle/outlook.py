"""Outlook: whether an engine could run a job now, after waiting, after buying machines, or never. A value.

Each engine forms its own (`submit.outlook`); which of several is chosen is decided in `multicluster`.
"""

from __future__ import annotations

from typing import Literal

from longboat.core.jobs import Value

Answer = Literal["now", "waits", "buys", "never", "unknown"]
"""`unknown`: nobody answered, or what was read does not tell."""


class Outlook(Value, frozen=True):
    answer: Answer
    reason: str = ""  # why not now
    wait_s: float | None = None  # about so long until it starts; None: nobody knows
    price: float | None = None  # of its GPUs for an hour; 0: one's own machines; None: not known
    machine_types: tuple[str, ...] = ()  # of the nodes that could take it, where a cloud made them
