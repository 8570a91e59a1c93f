"""A job file as a tree of nodes that remember where they were written. No YAML, no meaning of fields here."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from longboat.core.errors import JobError, Problem
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.words import counted

MAX_NODES = 100_000  # with aliases expanded: a bomb of aliases ends here
MAX_DEPTH = 64  # deeper than any job, and far from Python's limit
MAX_NUMBER_TEXT = 40  # int() of a million digits takes minutes
MAX_PROBLEMS = 100  # more tell nobody more


class SourcePosition(NamedTuple):
    file: str = ""
    line: int = 0
    column: int = 0


class YamlNode(NamedTuple):
    """A scalar, a list or a mapping; `text` is a scalar as written, `shown` what messages may show of it."""

    value: None | bool | int | float | str | list[YamlNode] | dict[str, YamlNode]
    place: SourcePosition = SourcePosition()
    text: str = ""
    plain: bool = False  # written without quotes
    keys: Mapping[str, SourcePosition] = {}
    shown: str | None = None  # the text before `${VAR}` was replaced

    @property
    def is_scalar(self) -> bool:
        return not isinstance(self.value, (list, dict))


def plain(node: YamlNode) -> Any:
    """The values alone, without where they were written."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


class Mistakes:
    """Collects problems; a reader that finds one reports it and goes on."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.count = 0
        """Of all that were reported, also of those that are not shown: a reader that sees it grow has read nothing."""
        self._settled: set[tuple[SourcePosition, str]] = set()
        self._more = 0

    @property
    def is_full(self) -> bool:
        """Nobody reads more; and finding the nearest name for each of 100,000 unknown keys would take minutes."""
        return len(self.problems) >= MAX_PROBLEMS

    def add(self, place: SourcePosition, path: str, message: str, *, hint: str | None = None) -> None:
        self.count += 1
        if (place, path) in self._settled:
            return
        if self.is_full:
            self._more += 1
            return
        self.problems.append(
            Problem(
                one_line(message),
                file=one_line(place.file),
                line=place.line,
                column=place.column,
                path=one_line(path),
                hint=one_line(hint) if hint else None,
            )
        )

    def settle(self, place: SourcePosition, path: str) -> None:
        """What was reported here is the whole story: what follows from it is not reported."""
        self._settled.add((place, path))

    def raise_if_any(self) -> None:
        """All problems, in the order of the files and of the lines in them."""
        if not self.problems:
            return
        files = list(dict.fromkeys(problem.file for problem in self.problems))
        problems = sorted(self.problems, key=lambda each: (files.index(each.file), each.line, each.column))
        more = [Problem(f"and {counted(self._more, 'more mistake')}", file=files[-1])] if self._more else []
        raise JobError(problems + more)


def one_line(text: str) -> str:
    """Safe to print on a terminal: control characters and halves of characters are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def join(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)


_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = lazy_pattern(r"[-+]?[0-9]+\Z")
_OCTAL = lazy_pattern(r"0o[0-7]+\Z")
_HEX = lazy_pattern(r"0x[0-9a-fA-F]+\Z")
_FLOAT = lazy_pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INF = lazy_pattern(r"([-+]?)\.(inf|Inf|INF)\Z")
_NAN = frozenset({".nan", ".NaN", ".NAN"})


def resolve(text: str) -> None | bool | int | float | str:
    """What an unquoted scalar means by the core schema of YAML 1.2. A number too long to be meant stays text."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if text[0] not in "0123456789+-." or len(text) > MAX_NUMBER_TEXT:
        return text
    if _INT.match(text):
        return int(text)
    if _OCTAL.match(text) or _HEX.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    if infinite := _INF.match(text):
        return -math.inf if infinite.group(1) == "-" else math.inf
    return math.nan if text in _NAN else text


def scalar(text: str, place: SourcePosition) -> YamlNode:
    return YamlNode(value=resolve(text), place=place, text=text, plain=True)


def from_python(value: object, *, place: SourcePosition, path: str, mistakes: Mistakes, depth: int = 0) -> YamlNode:
    """Fields that come from flags or Python instead of a file."""
    if depth > MAX_DEPTH:
        mistakes.add(place, path, f"nested deeper than {MAX_DEPTH} levels")
        return YamlNode(None, place)
    if value is None or isinstance(value, (bool, int, float, str)):
        return _python_scalar(value, place)
    if isinstance(value, os.PathLike):
        return _python_scalar(str(value), place)
    if isinstance(value, Mapping):
        entries = {}
        for key, item in value.items():
            if not isinstance(key, str):
                mistakes.add(place, path, f"found a key of type {type(key).__name__}, expected text")
                continue
            entries[key] = from_python(item, place=place, path=join(path, key), mistakes=mistakes, depth=depth + 1)
        return YamlNode(entries, place, keys=dict.fromkeys(entries, place))
    if isinstance(value, (list, tuple)):
        return YamlNode(
            [
                from_python(item, place=place, path=join(path, index), mistakes=mistakes, depth=depth + 1)
                for index, item in enumerate(value)
            ],
            place,
        )
    kinds = "text, a number, true, false, a list or a mapping"
    mistakes.add(place, path, f"found a {type(value).__name__}, expected {kinds}")
    return YamlNode(None, place)


def _python_scalar(value: None | bool | int | float | str, place: SourcePosition) -> YamlNode:
    if isinstance(value, str):
        return YamlNode(value, place, text=value)
    if isinstance(value, bool):
        return YamlNode(value, place, text="true" if value else "false")
    if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER_TEXT:
        return YamlNode("a number of more than 40 digits", place, text="a number of more than 40 digits")
    return YamlNode(value, place, text="" if value is None else repr(value))


def merge(first: YamlNode, second: YamlNode, *, depth: int = 0) -> YamlNode:
    """`second` over `first`: mappings deeply, everything else replaced. A null below the top level removes."""
    if not isinstance(first.value, dict) or not isinstance(second.value, dict):
        return second
    entries, keys = dict(first.value), dict(first.keys)
    for key, node in second.value.items():
        if depth and node.value is None and key in entries:
            del entries[key]
            continue
        entries[key] = merge(entries[key], node, depth=depth + 1) if key in entries else node
        keys[key] = second.keys.get(key, node.place)
    return first._replace(value=entries, keys=keys)
