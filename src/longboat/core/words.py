"""Lists of names and counted nouns in messages. Pure text; not tables, and nothing about terminals."""

from __future__ import annotations

from collections.abc import Sequence


def listing(names: Sequence[str], most: int, *, separator: str = ", ", count: int | None = None) -> str:
    """`a, b and 3 more`: the first `most` of them. `count`: how many there are, where not all are given."""
    more = (len(names) if count is None else count) - min(most, len(names))
    return separator.join(names[:most]) + (f" and {more} more" if more > 0 else "")


def counted(count: float, noun: str) -> str:
    """`1 GPU`, `0 GPUs`, `12,000 files`, `2 processes`."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun}{ending}"
