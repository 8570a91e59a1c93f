"""A list of runs that is followed: redrawn on a terminal, a line for every change elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from longboat.cli.output.tables import cut, paint_phase, show_cell, table
from longboat.cli.output.terminal import clean, is_terminal, paint, say
from longboat.core.errors import INTERRUPTED_EXIT, EngineError, UsageError
from longboat.core.runs import RunStatus

LOOK_S = 2.0
"""A list costs the embedded engine a few files for each run, and a cluster a few requests."""
HOME_AND_CLEAR = "\033[H\033[J"
CLEAR_ALL = "\033[H\033[2J"
WIDTHS = (24, 10, 5, 4, 6, 6, 4)
"""Of the columns before the last: lines that come one by one cannot be as wide as the widest."""


class RunTable(NamedTuple):
    """Columns and formats of a list of runs."""

    output: str
    record: Callable[[RunStatus], object]
    row: Callable[..., tuple[object, ...]]
    head: Sequence[str]
    wide_head: Sequence[str]

    @property
    def is_wide(self) -> bool:
        return self.output == "wide"

    def line(self, cells: Sequence[object]) -> str:
        texts = [show_cell(cell) for cell in cells]
        widths = (*WIDTHS, *[0] * (len(texts) - len(WIDTHS)))
        return "  ".join(text.ljust(width) for text, width in zip(texts, widths)).rstrip()


def changes(before: Mapping[str, RunStatus], runs: Sequence[RunStatus]) -> list[RunStatus]:
    """Runs that are new or changed, oldest first. Pure; passing time is no change."""
    return [run for run in reversed(runs) if run != before.get(run.name)]


def watch_runs(look: Callable[[], list[RunStatus]], shown: RunTable) -> int:
    """Watch runs until Ctrl-C. A cluster that does not answer is reported once and retried."""
    if shown.output not in ("table", "wide", "json"):
        raise UsageError(f"--watch with -o {shown.output}", hint="-o wide, or -o json: one object per line")
    is_drawn = is_terminal(sys.stdout) and shown.output != "json"
    before: dict[str, RunStatus] | None = None
    trouble = ""
    try:
        while True:
            try:
                runs = look()
                trouble = ""
            except EngineError as error:
                if before is None:
                    raise
                if error.message != trouble:
                    say(f"longboat: {clean(error.message)}; still trying")
                trouble, runs = error.message, list(before.values())
            if is_drawn:
                draw(runs, shown, is_first=before is None)
            else:
                tell(before, runs, shown)
            before = {run.name: run for run in runs}
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT


def tell(before: Mapping[str, RunStatus] | None, runs: Sequence[RunStatus], shown: RunTable) -> None:
    """Print one line for each change."""
    now = time.time()
    if before is None and shown.output != "json":
        print(shown.line(shown.wide_head if shown.is_wide else shown.head))
    for run in changes(before or {}, runs):
        if shown.output == "json":
            print(msgspec.json.encode(shown.record(run)).decode())
        else:
            print(shown.line(shown.row(run, wide=shown.is_wide, now=now)))
    for name in sorted(set(before or {}) - {run.name for run in runs}):
        print(
            msgspec.json.encode({"name": name, "phase": "removed"}).decode()
            if shown.output == "json"
            else f"{name}  removed"
        )
    sys.stdout.flush()


def draw(runs: Sequence[RunStatus], shown: RunTable, *, is_first: bool) -> None:
    """Redraw the screen in one write, so that it never flickers; rows that do not fit are counted."""
    size = shutil.get_terminal_size()
    now = time.time()
    head = shown.wide_head if shown.is_wide else shown.head
    lines = table(head, [shown.row(run, wide=shown.is_wide, now=now) for run in runs], width=size.columns or None)
    most = max(size.lines - 2, 1)
    painted = [
        paint(line, "bold", sys.stdout) if not number else paint_phase(line, sys.stdout)
        for number, line in enumerate(lines)
    ]
    if len(lines) > most:
        painted = [*painted[: most - 1], cut(f"... and {len(lines) - most + 1} more", size.columns or None)]
    print((CLEAR_ALL if is_first else HOME_AND_CLEAR) + "\n".join(painted), flush=True)
