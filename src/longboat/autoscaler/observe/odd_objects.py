"""Objects that cannot be read: passed over or held, each with its reason, and never the turn lost for them. Pure.

Everybody who may write in a namespace writes pods, Jobs and claims. What one of them says must not keep the autoscaler
from serving all others. Nodes, slices and device classes are the administrator's: there an error is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from longboat.core.errors import LongboatError

Body = Mapping[str, Any]
T = TypeVar("T")

MOST_SAID = 20
"""Objects named one by one: somebody may make thousands of a kind."""
MOST_TEXT = 300  # of a message: its first words name the field, and the rest may be anybody's


class OddObjects:
    """Unreadable objects of one observation, each with the reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def note(self, body: Body, bad: Exception) -> str:
        """Remember it; the reason, for whoever holds something because of it."""
        reason = f"not as Kubernetes writes it: {fault(bad)}"
        self._reasons.setdefault(name_of(body), reason)
        return reason

    def readable(self, bodies: Iterable[Body], read: Callable[[Body], T]) -> Iterator[T]:
        """What is read of each, without those of which nothing can be."""
        for body in bodies:
            try:
                value = read(body)
            except Exception as bad:  # what a stranger wrote may fail anywhere
                self.note(body, bad)
            else:
                yield value

    def reasons(self) -> tuple[str, ...]:
        """A sentence for each, in the order of their names."""
        texts = [f"{name}: {reason}" for name, reason in sorted(self._reasons.items())]
        more = len(texts) - MOST_SAID
        return (*texts[:MOST_SAID], f"{more} more objects cannot be read") if more > 0 else tuple(texts)


def fault(bad: Exception) -> str:
    text = (bad.message if isinstance(bad, LongboatError) else str(bad))[:MOST_TEXT]
    return f"{text} is missing" if isinstance(bad, KeyError) else text or type(bad).__name__


def name_of(body: Body) -> str:
    meta = body["metadata"]
    return f"{body.get('kind')} {meta.get('namespace') or ''}/{meta['name']}".replace(" /", " ")
