"""Progress of `longboat cluster`: a table of hosts and steps, redrawn on a terminal; lines elsewhere; or JSON."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from longboat.cli.output.live_lines import LiveLines
from longboat.cli.output.tables import table
from longboat.cli.output.terminal import clean, is_terminal, paint
from longboat.clusters.apply.step_log import STEPS_FILE, StepEvent, StepFailure

MARKS = {"started": "...", "waiting": "waits", "failed": "failed", "skipped": "-"}

MOST_LOGGED = 32 << 20
"""Characters of a host's output in its log: an installation prints some hundred KiB."""

WORDS = {"done": "done", "failed": "FAILED", "skipped": "skipped", "waiting": "waits"}
"""States that are a line each where there is no terminal."""


class ProgressTable:
    """Progress by host and step: prints every event at once and appends it to the host's log file."""

    def __init__(self, hosts: Sequence[str], output: str, logs: Path) -> None:
        self._hosts = hosts
        self._output = output
        self._logs = logs
        self._is_drawn = output != "json" and is_terminal(sys.stderr)
        self._began = time.monotonic()
        self._steps: list[str] = []
        self._cells: dict[tuple[str, str], str] = {}
        self._lines = LiveLines(sys.stderr)
        self._room: dict[str, int] = {}
        with contextlib.suppress(OSError):
            (logs / STEPS_FILE).write_bytes(b"")

    def listen(self, event: StepEvent) -> None:
        self._log(event)
        if event.state != "line":
            with contextlib.suppress(OSError), open(self._logs / STEPS_FILE, "ab") as steps:
                steps.write(msgspec.json.encode(event) + b"\n")
        if self._output == "json":
            if event.state != "line":
                print(msgspec.json.encode(event).decode(), flush=True)
        elif self._is_drawn:
            self._draw(event)
        elif event.state in WORDS:
            print(plain_line(event, time.monotonic() - self._began), file=sys.stderr, flush=True)

    def _log(self, event: StepEvent) -> None:
        """Append to the host's log. A host may print anything, for ever: of that no more is kept than fits, and nothing
        that drives the terminal of whoever reads it.
        """
        path = self._logs / f"{event.host}.log"
        if event.host not in self._room:
            with contextlib.suppress(OSError):
                if path.stat().st_size > MOST_LOGGED:
                    path.replace(path.with_suffix(".log.1"))
            self._room[event.host] = MOST_LOGGED
        state = event.state if event.state != "line" else ""
        line = f"{event.step}: {state} {clean(event.text)}".rstrip() + "\n"
        if event.state == "line":
            before = self._room[event.host]
            self._room[event.host] = max(0, before - len(line))
            if before < len(line):
                if not before:
                    return
                line = f"{event.step}: [what it printed from here on is left out]\n"
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as log:
            log.write(line)

    def _draw(self, event: StepEvent) -> None:
        if event.state == "line":
            return
        if event.step not in self._steps:
            self._steps.append(event.step)
        self._cells[event.host, event.step] = f"{event.seconds:.0f} s" if event.state == "done" else MARKS[event.state]
        rows = [[host, *(self._cells.get((host, step), "") for step in self._steps)] for host in self._hosts]
        self._lines.draw(table(["HOST", *map(str.upper, self._steps)], rows))


def plain_line(event: StepEvent, passed_s: float) -> str:
    word = f"done, {event.seconds:.1f} s" if event.state == "done" else WORDS[event.state]
    tail = f": {clean(event.text)}" if event.text else ""
    return f"{passed_s:7.1f} s  {event.host}  {event.step}  {word}{tail}"


def failure_lines(failures: Sequence[StepFailure], logs: Path) -> Iterator[str]:
    """Lines about failed steps: host, step, message, last lines of output, log file."""
    for failure in failures:
        name = paint(f"{failure.host}: {failure.step} failed", "red", sys.stderr)
        yield f"{name}: {clean(failure.message)}"
        for line in failure.last_lines:
            yield f"    {clean(line)}"
        if failure.hint:
            yield f"    hint: {clean(failure.hint)}"
        yield f"    all of it: {logs / f'{failure.host}.log'}"
