"""Progress of a stack: a table of resources, redrawn on a terminal; a line per event elsewhere; or JSON."""

from __future__ import annotations

import sys

import msgspec

from longboat.cli.output.live_lines import LiveLines
from longboat.cli.output.tables import table
from longboat.cli.output.terminal import clean, is_terminal
from longboat.clusters.cloud.aws.stack import ResourceEvent

WORDS = {"done": "done", "failed": "FAILED", "kept": "kept"}


class ResourceTable:
    """Resources of a stack in the order in which their work began; those that are done last make room for the rest."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._is_drawn = output != "json" and is_terminal(sys.stderr)
        self._began: dict[str, float] = {}
        self._last: dict[str, ResourceEvent] = {}
        self._first: float | None = None
        self._lines = LiveLines(sys.stderr)

    def listen(self, event: ResourceEvent) -> None:
        self._first = event.at if self._first is None else self._first
        began = self._began.setdefault(event.resource, event.at)
        self._last[event.resource] = event
        if self._output == "json":
            print(msgspec.json.encode(event).decode(), flush=True)
        elif self._is_drawn:
            self._draw()
        elif event.state in WORDS:
            tail = f": {clean(event.text)}" if event.text and event.state in ("failed", "kept") else ""
            word = f"{WORDS[event.state]}, {event.at - began:.0f} s"
            passed = event.at - self._first
            print(f"{passed:7.0f} s  {event.resource}  {event.type}  {word}{tail}", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        order = {"failed": 0, "started": 1, "kept": 2, "done": 3}
        rows = [
            (
                event.resource,
                event.type,
                WORDS.get(event.state, "..."),
                "" if event.state == "started" else f"{event.at - self._began[event.resource]:.0f} s",
                event.text if event.state in ("failed", "kept") else "",
            )
            for event in sorted(self._last.values(), key=lambda event: (order[event.state], -event.at))
        ]
        done = sum(event.state in WORDS for event in self._last.values())
        head = f"{done} of {len(self._last)} resources"
        self._lines.draw([head, *table(("RESOURCE", "TYPE", "STATE", "TIME", ""), rows)])
