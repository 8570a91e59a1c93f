"""Data on stdout in the formats of `-o`. Values become plain mappings here: every field there, times as ISO 8601."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from longboat.cli.output.times import show_moment
from longboat.core.runs import Attempt, LogLine, RunStatus

MOMENTS = ("created", "started", "ended", "time")
COUNTERS: dict[type, str] = {RunStatus: "attempt", Attempt: "number", LogLine: "attempt"}
"""Fields that number attempts: people count them from 1, in tables, sentences and data alike."""


def plain(value: object) -> Any:
    """Convert to mappings, lists, strings, numbers and None; no field is left out."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        shown: dict[str, Any] = {
            name: show_moment(item) if name in MOMENTS else plain(item) for name, item in fields.items()
        }
        if counter := COUNTERS.get(type(value)):
            shown[counter] += 1
        return shown
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value


def to_json(data: object) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def to_yaml(data: object) -> str:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100).rstrip("\n")


def write(data: object, output: str) -> None:
    """Print plain data as JSON or YAML."""
    print(to_json(data) if output == "json" else to_yaml(data))


def show(
    values: Sequence[Any], output: str, *, record: Callable[[Any], object], tables: Callable[[bool], None]
) -> None:
    """Print a list in the chosen format; `tables` prints it as a table, wide or not."""
    if output in ("json", "yaml"):
        write([record(value) for value in values], output)
    elif output == "name":
        sys.stdout.writelines(f"{value.name}\n" for value in values)
    else:
        tables(output == "wide")
