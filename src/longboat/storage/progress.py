"""Progress of a transfer in words with sizes, told as often as somebody reads them. Pure but for the clock.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIVE_S = 1.0
"""For a line that is replaced: a person sees it move."""
SPARSE_S = 30.0
"""For lines that stay, in a log: a hundred of them are an hour."""


def progress_words(done: int, total: int | None) -> str:
    """`1.2 GiB of 5.0 GiB (24 %)`, or only what is done where nobody knows the whole."""
    if not total:
        return size_words(done)
    return f"{size_words(done)} of {size_words(total)} ({100 * done // total} %)"


def size_words(count: int) -> str:
    """`512 B`, `1.2 GiB`"""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1000 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def reporter(tell: Callable[[str], None], label: str, every_s: float) -> Callable[[int, int | None], None]:
    """A `Progress` that tells now and then; not at once: most transfers are over soon."""
    reported = [time.monotonic()]

    def progress(done: int, total: int | None) -> None:
        if time.monotonic() - reported[0] >= every_s:
            reported[0] = time.monotonic()
            tell(f"{label}: {progress_words(done, total)}")

    return progress
