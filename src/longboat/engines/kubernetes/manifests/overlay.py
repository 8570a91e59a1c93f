"""What a platform team adds to every pod of a context (`pod:` in the settings), merged into our template. Pure.

Mappings are merged; lists of things with a name are merged by that name (volumes, containers, env; mounts by their
path), other lists are added to. The container is called `main`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

_KEYS = {"volumeMounts": "mountPath", "ports": "containerPort"}
"""What tells the items of a list apart, where it is not `name`."""


def overlaid(template: Mapping[str, Any], pod: Mapping[str, Any]) -> Object:
    """A pod template with `pod` (`metadata`, `spec`) laid over it. Neither is changed."""
    return _merged(template, pod)


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Object:
    found = dict(ours)
    for key, value in theirs.items():
        before = found.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            found[key] = _merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            found[key] = _joined(before, value, _KEYS.get(key, "name"))
        else:
            found[key] = value
    return found


def _joined(ours: list[Any], theirs: list[Any], key: str) -> list[Any]:
    found = list(ours)
    places = {item[key]: at for at, item in enumerate(found) if isinstance(item, Mapping) and key in item}
    for item in theirs:
        at = places.get(item[key]) if isinstance(item, Mapping) and key in item else None
        if at is not None:
            found[at] = _merged(found[at], item)
        elif item not in found:
            found.append(item)
    return found
