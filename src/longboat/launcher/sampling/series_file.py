"""The file of a node's metrics, `metrics.jsonl`: rows are appended, and thinned out when the file gets too large.

A row is `[kind, time, key, ...]`: of the kinds `node`, `rank` and `gpu` follow numbers in the order of the header's
columns, of `step` (and `event`, from TensorBoard's files) the step and the numbers by name. JSON null is a number that
is not finite, or unknown. The first line, an object, is the header; a later object replaces fields of it.
Down-sampling is uniform over the whole run: the oldest part has the same resolution as the newest. Only where a row of
each series is too much already, because names change all the time, the oldest go.
"""

from __future__ import annotations

import os

from ..node.jsonfiles import dumps, loads, read_bytes, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "metrics.jsonl"
BASE_BYTES, RANK_BYTES = 256 << 10, 96 << 10
"""Bound of the file: for the node, and for each of its ranks. About 1,500 rows of each, enough for any screen."""
STEPS = ("step", "event")
_FINEST_S = {True: 0.1, False: 5.0}
"""First width of bins when a file is thinned: of numbers of the trainer, and of samples."""


class SeriesFile:
    def __init__(self, path: str, ranks: int) -> None:
        self._path = path
        self.limit = BASE_BYTES + RANK_BYTES * ranks
        self._header: dict[str, Any] = {}
        self._new: list[str] = []
        self._size: int | None = None
        self.width_s = {True: 0.0, False: 0.0}  # of bins, for numbers of the trainer and for samples; 0: all are kept

    def describe(self, **fields: Any) -> None:
        """Set fields of the header."""
        self._header.update(fields)
        self._new.append(dumps(fields))

    def add(self, row: list[Any]) -> None:
        self._new.append(dumps(row))

    def flush(self) -> None:
        """Append what is new. Best effort: a full disk must not end a training, and the rows are not kept for it."""
        if not self._new:
            return
        data = ("\n".join(self._new) + "\n").encode("ascii")
        self._new = []
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(descriptor, data)
                self._size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if self._size > self.limit:
                self._compact()
        except OSError:
            pass

    def _compact(self) -> None:
        rows = read_rows(read_bytes(self._path))
        lines = [dumps(self._header)]
        for is_step in (True, False):
            chosen = [row for row in rows if (row[0] in STEPS) == is_step]
            width_s, texts = fit(chosen, self.width_s[is_step], _FINEST_S[is_step], self.limit // 4)
            self.width_s[is_step] = width_s
            lines += texts
        write_whole(self._path, ("\n".join(lines) + "\n").encode("ascii"))


def read_header(data: bytes) -> dict[str, Any]:
    """The header of a file, later fields in place of earlier ones."""
    header: dict[str, Any] = {}
    for line in data.split(b"\n"):
        if line.startswith(b"{"):
            try:
                header.update(loads(line.decode("ascii")))
            except ValueError:
                continue
    return header


def read_rows(data: bytes) -> list[list[Any]]:
    """The rows of a file; a line that is cut or damaged is none."""
    rows = []
    for line in data.split(b"\n"):
        try:
            row = loads(line.decode("ascii")) if line else None
        except ValueError:
            continue
        if isinstance(row, list) and len(row) > 3 and isinstance(row[1], (int, float)):
            rows.append(row)
    return rows


def fit(rows: list[list[Any]], width_s: float, finest_s: float, most: int) -> tuple[float, list[str]]:
    """Rows as lines of at most so many bytes, thinned as little as that takes, and the width of the bins. Where bins
    as wide as the run do not help, the newest that fit, and the width stays as it was. Pure."""
    times = [row[1] for row in rows] or [0.0]
    span_s, wider_s = min(max(times) - min(times), 1e9), width_s
    while True:
        lines = [dumps(row) for row in thin(rows, wider_s)]
        if sum(map(len, lines)) + len(lines) <= most:
            return wider_s, lines
        if not wider_s <= span_s:
            return width_s, _newest(thin(rows, width_s), most)
        wider_s = max(finest_s, 2 * wider_s)


def _newest(rows: list[list[Any]], most: int) -> list[str]:
    lines: list[str] = []
    for row in sorted(rows, key=lambda row: row[1], reverse=True):
        line = dumps(row)
        most -= len(line) + 1
        if most < 0:
            break
        lines.append(line)
    return lines[::-1]


def thin(rows: list[list[Any]], width_s: float) -> list[list[Any]]:
    """One row for each series and bin of time: the last of the trainer's numbers, means of samples; all of them where
    bins have no width. Pure."""
    if not width_s:
        return rows
    bins: dict[tuple[Any, ...], list[list[Any]]] = {}
    for row in rows:
        names = tuple(sorted(row[4])) if row[0] in STEPS and len(row) > 4 and isinstance(row[4], dict) else len(row)
        bins.setdefault((row[0], str(row[2]), names, row[1] // width_s), []).append(row)
    return [_merged(group) for group in bins.values()]


def _merged(group: list[list[Any]]) -> list[Any]:
    last = group[-1]
    if len(group) == 1 or last[0] in STEPS:
        return last
    return last[:3] + [_mean([row[at] for row in group]) for at in range(3, len(last))]


def _mean(values: list[Any]) -> float | None:
    numbers = [value for value in values if isinstance(value, (int, float))]
    return round(sum(numbers) / len(numbers), 4) if numbers else None
