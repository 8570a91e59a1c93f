"""Tables of text: columns two spaces apart, cut to the terminal's width only where there is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import IO

from longboat.cli.output.terminal import PHASE_COLOURS, clean, is_terminal, paint

GAP = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None) -> list[str]:
    """Format a table as lines. None is shown as `-`; lines longer than `width` are cut, with `...`."""
    cells = [[clean(name) for name in head], *([show_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [GAP.join(cell.ljust(size) for cell, size in zip(row, widths)).rstrip() for row in cells]
    return [cut(line, width) for line in lines]


def show_cell(cell: object) -> str:
    return "-" if cell is None or cell == "" else clean(str(cell))


def cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: max(width - 3, 0)]}..."


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]], stream: IO[str] | None = None) -> None:
    out = stream or sys.stdout
    import shutil  # not at the start: with it come the compressors

    width = (shutil.get_terminal_size().columns or None) if is_terminal(out) else None  # 0: it does not tell
    for number, line in enumerate(table(head, rows, width=width)):
        print(paint(line, "bold", out) if number == 0 else paint_phase(line, out), file=out)


def paint_phase(line: str, out: IO[str]) -> str:
    """Colour the first phase word of a row."""
    for phase, colour in PHASE_COLOURS.items():
        before, separator, after = line.partition(f" {phase} ")
        if separator:
            return f"{before} {paint(phase, colour, out)} {after}"
    return line


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print one `name: value` per line; fields without a value are left out."""
    shown = [(name, show_cell(value)) for name, value in fields if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{name}:{' ' * (width - len(name))} {value}")


def show_metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in metrics.items())
