"""Regular expressions that are compiled when they are first used: those of all modules of a small command take longer
than any of its own work, and it uses few of them."""

from __future__ import annotations

import re
from typing import AnyStr, cast

_METHODS = ("match", "fullmatch", "search", "sub", "finditer", "findall", "split", "pattern")


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but a mistake in the expression shows at its first use."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))


class _LazyPattern:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> object:
        compiled = re.compile(self._text, self._flags)
        for method in _METHODS:  # from now on each is found without coming here
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
