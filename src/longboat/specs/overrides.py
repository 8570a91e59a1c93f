"""Overrides of a job file, `--set a.b=c`: values put into the tree by path."""

from __future__ import annotations

import re

from longboat.core.jobs import DEFAULT_ROLE
from longboat.specs.fields.composites import Either, ListOf, MapOf, Shape, kind_below
from longboat.specs.fields.job_fields import JOB
from longboat.specs.fields.scalars import nearest
from longboat.specs.yaml.yaml12 import parse_text
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, YamlNode, scalar

_SEGMENT = re.compile(r'"([^"]*)"|\'([^\']*)\'|([^."\']+)')


def apply_override(root: YamlNode, override: str, mistakes: Mistakes) -> YamlNode:
    """The tree with one override applied; a bad one is reported and changes nothing."""
    path, equals, text = override.partition("=")
    path = path.strip()
    place = SourcePosition(f"--set {path[:80]}")
    if not equals:
        mistakes.add(place, "", "expected PATH=VALUE", hint="for example --set nodes=4 or --set env.LR=0.1")
        return root
    segments = split_path(path)
    if not segments:
        mistakes.add(place, "", "expected a path such as nodes or roles.worker.gpus before the =")
        return root
    value = parse_value(text, place, mistakes)
    if value is None or _is_misspelt_role(root, segments, place, mistakes):
        return root
    return _put(root, segments, value, JOB, place, mistakes)


def _is_misspelt_role(root: YamlNode, path: list[str], place: SourcePosition, mistakes: Mistakes) -> bool:
    """A field of a role whose name is nearly that of one the job has: it would be a role more, and nobody meant it."""
    if path[0] != "roles" or len(path) < 3 or not isinstance(root.value, dict):
        return False
    roles = root.value["roles"].value if "roles" in root.value else None
    known = list(roles) if isinstance(roles, dict) and roles else [DEFAULT_ROLE]
    close = "" if path[1] in known else nearest(path[1], known)
    if close:
        hint = f"another role is written as a whole: --set 'roles.{path[1][:40]}={{{path[2][:40]}: ...}}'"
        mistakes.add(place, "", f"there is no role {path[1][:40]}{close}", hint=hint)
    return bool(close)


def split_path(path: str) -> list[str]:
    """`labels."a.b".c` gives three segments; an empty list when the path is malformed."""
    segments: list[str] = []
    position = 0
    while position < len(path):
        match = _SEGMENT.match(path, position)
        if match is None:
            return []
        segments.append(next(group for group in match.groups() if group is not None))
        position = match.end()
        if position < len(path):
            if path[position] != "." or position + 1 == len(path):
                return []
            position += 1
    return segments


def parse_value(text: str, place: SourcePosition, mistakes: Mistakes) -> YamlNode | None:
    """A scalar as YAML 1.2 reads it, or a quoted, list or mapping value in YAML's flow style."""
    stripped = text.strip()
    if stripped[:1] not in ("[", "{", '"', "'"):
        if "\0" in stripped:
            mistakes.add(place, "", "found a NUL byte")
            return None
        return scalar(stripped, place)
    node = parse_text(stripped, file=place.file, mistakes=mistakes)
    return None if node is None else _at(node, place)


def _at(node: YamlNode, place: SourcePosition) -> YamlNode:
    """Lines and columns inside a flag mean nothing to a user."""
    if isinstance(node.value, dict):
        entries = {key: _at(item, place) for key, item in node.value.items()}
        return node._replace(value=entries, place=place, keys=dict.fromkeys(entries, place))
    if isinstance(node.value, list):
        return node._replace(value=[_at(item, place) for item in node.value], place=place)
    return node._replace(place=place)


def _put(
    node: YamlNode, path: list[str], value: YamlNode, kind: object, place: SourcePosition, mistakes: Mistakes
) -> YamlNode:
    if isinstance(kind, MapOf) and not isinstance(kind.item, Shape):
        path = [".".join(path)]  # the keys of labels have dots of their own
    if isinstance(node.value, list) or (node.value is None and _is_list(kind) and path[0].isdecimal()):
        return _put_item(node, path, value, kind, place, mistakes)
    if not isinstance(node.value, dict) and node.value is not None:
        expanded = _expand(node, kind)
        if expanded is None:
            where = place.file.removeprefix("--set ").rsplit(".", len(path))[0]
            mistakes.add(place, "", f"{where} is not a mapping here; set it as a whole: --set {where}=...")
            return node
        node = expanded
    entries = dict(node.value) if isinstance(node.value, dict) else {}
    key = path[0]
    below = entries.get(key, YamlNode(None, place))
    if len(path) > 1:
        entries[key] = _put(below, path[1:], value, kind_below(kind, key), place, mistakes)
    elif value.value is None and kind is not JOB:
        entries.pop(key, None)
    else:
        entries[key] = value
    return node._replace(value=entries, keys={**node.keys, key: place}, text="", shown=None)


def _put_item(
    node: YamlNode, path: list[str], value: YamlNode, kind: object, place: SourcePosition, mistakes: Mistakes
) -> YamlNode:
    items = list(node.value) if isinstance(node.value, list) else []
    if not path[0].isdecimal() or len(path[0]) > 6 or int(path[0]) > len(items):
        problem = f"found {path[0][:40]!r} as the place in a list"
        mistakes.add(place, "", f"{problem}, expected a number from 0 to {len(items)}")
        return node
    index = int(path[0])
    if len(path) == 1 and value.value is None:
        return node._replace(value=items[:index] + items[index + 1 :])
    below = items[index] if index < len(items) else YamlNode(None, place)
    put = value if len(path) == 1 else _put(below, path[1:], value, kind_below(kind, path[0]), place, mistakes)
    items[index : index + 1] = [put]
    return node._replace(value=items, text="", shown=None)


def _is_list(kind: object) -> bool:
    return isinstance(kind, ListOf) or (isinstance(kind, Either) and isinstance(kind.listed, ListOf))


def _expand(node: YamlNode, kind: object) -> YamlNode | None:
    """`retries: 2` becomes `retries: {count: 2}`, so that `--set retries.on=...` has something to go into."""
    if isinstance(kind, Shape) and kind.short_name and node.is_scalar:
        return YamlNode({kind.short_name: node}, node.place, keys={kind.short_name: node.place})
    return None
