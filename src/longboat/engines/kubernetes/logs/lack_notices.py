"""Notices about nodes whose log cannot be had: the first few by name, the others counted.

Of a gang of a thousand nodes all say the same. Not here: where logs are looked for (`merge`, `sources`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from longboat.core.words import counted

NAMED = 3
"""So many nodes of a kind are named: that they share a machine, a rack or a reason shows in three."""
MACHINE, KEPT, GONE = "machine", "storage", "gone"
OTHERS = {
    MACHINE: "nor can the logs of {nodes} be read from their machines",
    KEPT: "nor can the logs of {nodes} be read from the storage",
    GONE: "nor are there the pods of {nodes}, or all of their logs",
}


class LackNotices:
    """Tells them; `finish` tells how many were not named. For several threads."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def tell(self, kind: str, text: str) -> None:
        with self._lock:
            self._seen[kind] += 1
            is_named = self._seen[kind] <= NAMED
        if is_named:
            self._notice(text)

    def finish(self) -> None:
        with self._lock:
            more = {kind: count - NAMED for kind, count in self._seen.items() if count > NAMED}
            self._seen.clear()
        for kind, count in more.items():
            self._notice(OTHERS[kind].format(nodes=counted(count, "more node")))
