"""Fields that an API server dropped from an object it was sent: those behind a closed gate vanish silently. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KEYS = ("name", "mountPath", "key", "type", "uid")
"""By which entries of a list are found again when the server (or a webhook) put others before them."""


def dropped_fields(sent: Mapping[str, Any], returned: Mapping[str, Any]) -> list[str]:
    """Paths of the fields that were sent and are not in the answer, `spec.template.spec.containers[main].command`.

    Values may differ: servers normalise them. Empty texts and lists may be absent: that says the same.
    """
    fields: list[str] = []
    _compare(sent, returned, "", fields)
    return fields


def _compare(sent: Any, returned: Any, path: str, lost: list[str]) -> None:
    if isinstance(sent, Mapping):
        if not isinstance(returned, Mapping):
            lost.append(path)
            return
        for key, value in sent.items():
            below = f"{path}.{key}" if path else str(key)
            if key in returned:
                _compare(value, returned[key], below, lost)
            elif value is not None and value != "" and value != []:
                lost.append(below)
    elif isinstance(sent, (list, tuple)):
        _compare_lists(sent, returned, path, lost)


def _compare_lists(sent: Sequence[Any], returned: Any, path: str, lost: list[str]) -> None:
    if not isinstance(returned, list):
        lost.append(path)
        return
    for position, item in enumerate(sent):
        name, match = _match(item, position, returned)
        if match is None:
            lost.append(f"{path}[{name}]")
        else:
            _compare(item, match, f"{path}[{name}]", lost)


def _match(item: Any, position: int, returned: Sequence[Any]) -> tuple[str, Any]:
    """Name of the entry in messages, and its counterpart."""
    if not isinstance(item, Mapping):
        return str(item), item if item in returned else None
    for key in KEYS:
        if key in item:
            same = [other for other in returned if isinstance(other, Mapping) and other.get(key) == item[key]]
            return str(item[key]), max(same, key=lambda other: _likeness(item, other), default=None)
    return str(position), returned[position] if position < len(returned) else None


def _likeness(item: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """Several tolerations may have one key: the one that agrees most is meant."""
    return sum(1 for key, value in item.items() if other.get(key) == value)
