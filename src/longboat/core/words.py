"""Lists of names, counted nouns and likely spellings in messages. Pure text; not tables, nothing about terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def listing(names: Sequence[str], most: int, *, separator: str = ", ", count: int | None = None) -> str:
    """`a, b and 3 more`: the first `most` of them. `count`: how many there are, where not all are given."""
    more = (len(names) if count is None else count) - min(most, len(names))
    return separator.join(names[:most]) + (f" and {more} more" if more > 0 else "")


NEAR = 0.75
"""How alike two names must be: one letter of four wrong, or two of them swapped. With less a guess misleads."""


def nearest(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """The names that were probably meant, best first."""
    import difflib  # only when something was misspelt

    bare, wanted = {known.strip("-").lower(): known for known in names}, name.strip("-").lower()[:60]
    near = difflib.get_close_matches(wanted, bare, most + 2, NEAR)
    near.sort(key=lambda each: sorted(each) != sorted(wanted))  # the same letters in another order are likeliest
    return [bare[each] for each in near[:most]]


def counted(count: float, noun: str) -> str:
    """`1 GPU`, `0 GPUs`, `12,000 files`, `2 processes`."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun}{ending}"


def three_digits(value: float) -> str:
    """A measured number: 0.672, 14.9, 1,490; never 1.49e+03."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
