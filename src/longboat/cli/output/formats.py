"""Data on stdout in the formats of `-o`. Values become plain mappings in `sdk.records`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from longboat.cli.output.terminal import CONTROLS
from longboat.sdk.records import plain as plain


def to_json(data: object) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def to_yaml(data: object) -> str:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100).rstrip("\n")


def write(data: object, output: str) -> None:
    """Print plain data as JSON or YAML."""
    print(to_json(data) if output == "json" else to_yaml(data))


CELL_CONTROLS = {code: shown for code, shown in CONTROLS.items() if chr(code) not in "\t\r\n"}
"""What drives a terminal is in no cell, for a name is anybody's word; a line break in quotes is data."""


def write_csv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV."""
    import csv

    csv.writer(sys.stdout, lineterminator="\n").writerows(map(_csv_cell, row) for row in rows)


def _csv_cell(cell: object) -> object:
    """Spreadsheets take a text that begins like this for a formula, unless a quote is before it; names are others'."""
    if not isinstance(cell, str):
        return cell
    cell = cell.translate(CELL_CONTROLS)
    if len(cell) < 2 or cell[0] not in "=+-@\t\r":
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


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
