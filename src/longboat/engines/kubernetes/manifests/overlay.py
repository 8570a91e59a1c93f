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
    merged = dict(ours)
    for key, value in theirs.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            merged[key] = _joined(before, value, _KEYS.get(key, "name"))
        else:
            merged[key] = value
    return merged


def _joined(ours: list[Any], theirs: list[Any], key: str) -> list[Any]:
    joined = list(ours)
    places = {item[key]: at for at, item in enumerate(joined) if isinstance(item, Mapping) and key in item}
    for item in theirs:
        at = places.get(item[key]) if isinstance(item, Mapping) and key in item else None
        if at is not None:
            joined[at] = _merged(joined[at], item)
        elif item not in joined:
            joined.append(item)
    return joined
