"""Shared Secrets in copies: which copy of one a run uses. Pure.

Every run that uses a Secret is one of its owners, and each further owner makes every write of it slower for the API
server: with 500 of them one takes seconds. So a Secret that has enough owners is left to them, and those who come
later share a copy of it, NAME-2, NAME-3, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MOST_OWNERS = 40
"""Of one copy, about: those who look at the same moment may be a few more."""

_COPY = re.compile(r"(.+-[0-9a-f]{16})-(\d+)$")


def base_of(name: str) -> str:
    """The name without the number of the copy."""
    match = _COPY.match(name)
    return match[1] if match else name


def with_room(bodies: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The fullest copy that takes more owners, by base name."""
    room: dict[str, Mapping[str, Any]] = {}
    for body in sorted(bodies, key=lambda body: (-_owners(body), _name(body))):
        if _owners(body) < MOST_OWNERS:
            room.setdefault(base_of(_name(body)), body)
    return room


def copy_for(base: str, bodies: Iterable[Mapping[str, Any]]) -> str:
    """The name to use: of a copy with room, or the first that does not exist."""
    copies = [body for body in bodies if base_of(_name(body)) == base]
    room = with_room(copies).get(base)
    if room is not None:
        return _name(room)
    taken = {_name(body) for body in copies}
    number = 1
    while (name := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return name


def _name(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["name"])


def _owners(body: Mapping[str, Any]) -> int:
    return len(body["metadata"].get("ownerReferences") or ())
