"""Numbers of the trainers as series: what `longboat.step` appends to `steps/RANK.series`, and how fast a rank steps.

A rank opens its file for each write, so the file is renamed first and read a turn later, when nobody writes to it.
"""

from __future__ import annotations

import os

from ..node.jsonfiles import loads, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 4 << 20
"""Of one turn; a rank writes far less (`trainer`)."""
MOST_NAMES = 256
"""Different metrics of one rank: each is a series of its own, and a name may be made of anything. Of sets of names that
are reported together no more are told apart either."""
NAME_LENGTH = 120  # it is the title of a curve
WINDOW_S = 120.0
"""How fast a rank steps now is told from the steps of so long."""


class StepSeries:
    """One rank's points."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: set[str] = set()
        self._kept: dict[tuple[str, ...], float] = {}  # names -> time of the last point that was kept
        self._passed: dict[tuple[str, ...], list[Any]] = {}  # names -> the last point that was not, if it is later
        self._steps: list[tuple[float, int]] = []
        self.bad: dict[str, int] = {}  # metric -> first step at which it was not a finite number

    def take(self, spacing_s: float, *, is_last: bool = False) -> list[list[Any]]:
        """New points `[time, step, {name: number}]`, of equal names none closer together than `spacing_s`, but for the
        very last one."""
        points = self._read(self._path + ".taken")
        if is_last:
            points += self._read(self._path)
        else:
            try:
                os.rename(self._path, self._path + ".taken")
            except OSError:
                pass
        taken = [point for point in points if self._note(point) and self._is_due(point, spacing_s)]
        if is_last:
            taken += sorted(self._passed.values(), key=lambda point: point[0])
            self._passed = {}
        return taken

    def _read(self, path: str) -> list[list[Any]]:
        try:
            data = read_bytes(path, MOST_BYTES)
        except OSError:
            data = b""
        try:
            os.unlink(path)
        except OSError:
            pass
        return [point for point in map(self._point, data.split(b"\n")) if point is not None]

    def _point(self, line: bytes) -> list[Any] | None:
        try:
            step, at, numbers = loads(line.decode("ascii"))
            names = [name for name in numbers if len(name) <= NAME_LENGTH]
            self._names.update(names[: MOST_NAMES - len(self._names)])
            return [
                round(float(at), 3),
                int(step),
                {name: _number(numbers[name]) for name in names if name in self._names},
            ]
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return None  # nothing of ours, or cut

    def _note(self, point: list[Any]) -> bool:
        at, step, numbers = point
        for name, number in numbers.items():
            if number is None:
                self.bad.setdefault(name, step)
        if self._steps and step < self._steps[-1][1]:
            self._steps = []  # it began again
        if not self._steps or at - self._steps[-1][0] >= WINDOW_S / 240 or len(self._steps) < 2:
            self._steps.append((at, step))
        else:
            self._steps[-1] = (at, step)
        while len(self._steps) > 2 and at - self._steps[1][0] > WINDOW_S:
            self._steps.pop(0)
        return True

    def _is_due(self, point: list[Any], spacing_s: float) -> bool:
        key = tuple(sorted(point[2]))
        if key not in self._kept and len(self._kept) >= MOST_NAMES:
            key = ()
        if point[0] - self._kept.get(key, float("-inf")) < spacing_s:
            self._passed[key] = point
            return False
        self._passed.pop(key, None)
        self._kept[key] = point[0]
        return True

    def pace(self) -> tuple[float, int] | None:
        """Steps per second of late, and the number of steps that tell so; None: not known."""
        if len(self._steps) < 2:
            return None
        (since, first), (until, last) = self._steps[0], self._steps[-1]
        return ((last - first) / (until - since), last - first) if until > since and last > first else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = float("%.12g" % value)  # the rest is noise, and half of the file
    return number if number - number == 0 else None
