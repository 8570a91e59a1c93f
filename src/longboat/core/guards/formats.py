"""The format of stored records: what a newer Longboat wrote is not acted upon, and that is said.

A new optional field needs no new format: who does not know it ignores it. FORMAT is raised when an older Longboat would
do harm with what a newer one wrote, and only such records have the new one. `tests/formats` keeps files of every
format, which must be readable for ever.
"""

from __future__ import annotations

import msgspec

from longboat.core.errors import EngineError
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value

FORMAT = 2
"""The newest that this Longboat reads."""
PLAIN, SPARES = 1, 2
"""What is written: of runs in clusters that have spare nodes, and of everything else. An older controller takes a spare
for a member whose pod is too many, and ends gangs that go on without a lost one."""


def _present() -> int:
    return PLAIN


class Stored(Value, frozen=True, kw_only=True):
    """Base of records that another version may read. The format is always written, unlike other defaults."""

    format: int = msgspec.field(default_factory=_present)


def is_newer(text: bytes | str) -> bool:
    """Whether a stored JSON object says that a newer Longboat wrote it, which need not be readable otherwise."""
    try:
        return decode(text, Stored).format > FORMAT
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


class NewerFormat(EngineError):
    """A record that this Longboat is too old for: `title` names it."""

    def __init__(self, title: str) -> None:
        super().__init__(
            f"{title} was written by a newer Longboat; this one is too old to read it",
            hint="upgrade Longboat here; nothing was changed",
        )
