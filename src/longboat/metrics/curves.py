"""Curves as text for a terminal, and as SVG. Pure: points in, lines out.

Values that are not finite are left out. Long series are cut into as many columns as can be seen; of each column the
lowest and the highest value are drawn, so that a spike stays one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from re import compile as pattern
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 900, 220, 64  # of one panel
COLUMNS = 400  # of a curve in SVG
COLOURS = ("#14639c", "#c4541a", "#2e7d32", "#8e24aa", "#b8860b", "#00838f", "#ad1457", "#5d4037")
DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""Curves differ by these too: twenty have no twenty colours, and not everybody sees them."""
NAME_PX, MOST_NAMED, LONGEST_NAME = 7, 14, 28
"""The names of several curves stand at the right, one below the other, as far as there is room."""
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille pattern, by column and row of its dots."""
_BLANK = 0x2800
MOST = 1e300
"""Larger values, infinite ones and those that are no numbers cannot be drawn: their distances are infinite."""


_NO_XML = pattern("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LEAST = 1e-290  # a height that can be divided by


class Curve(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]


class Frame(NamedTuple):
    """The part of the plane that is drawn."""

    left: float
    right: float
    low: float
    high: float


def frame_of(curves: Sequence[Curve]) -> Frame | None:
    """The frame that holds all finite points; None where there is none."""
    points = [(x, y) for curve in curves for x, y in curve.points if abs(y) < MOST]
    if not points:
        return None
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    if high - low > max(abs(high) * 1e-12, LEAST):
        return Frame(left, right, low, high)
    pad = abs(high) / 2 if abs(high) > LEAST else 1.0  # a level line, in the middle
    return Frame(left, right, low - pad, high + pad)


def columns_of(curve: Curve, frame: Frame, count: int) -> list[tuple[float, float] | None]:
    """Lowest and highest value of each of so many columns; None: no point is there."""
    columns: list[tuple[float, float] | None] = [None] * count
    span = frame.right - frame.left
    for x, y in curve.points:
        if abs(y) < MOST:
            at = min(count - 1, int((x - frame.left) / span * count)) if span else 0
            known = columns[at]
            columns[at] = (min(known[0], y), max(known[1], y)) if known else (y, y)
    return columns


def text_curve(
    curve: Curve, *, width: int, height: int, is_ascii: bool = False, frame: Frame | None = None
) -> list[str]:
    """One curve as lines of this many characters, with its scale at the left and the first and last x below.

    `frame`: that of several curves, which are then drawn to one scale.
    """
    own = frame_of([curve])
    if own is None:
        return ["(no finite value)"]
    frame = frame or own
    labels = [f"{value:.4g}" for value in (frame.high, (frame.high + frame.low) / 2, frame.low)]
    room = max(map(len, labels))
    columns = max(width - room - 2, 8)
    rows = (_ascii_rows if is_ascii else _braille_rows)(curve, frame, columns, height)
    scale = {0: labels[0], height - 1: labels[2]} | ({height // 2: labels[1]} if height > 4 else {})
    lines = [
        f"{scale.get(number, '').rjust(room)} {'|' if is_ascii else '┤' if number in scale else '│'}{row}".rstrip()
        for number, row in enumerate(rows)
    ]
    first, last = f"{frame.left:g}", f"{frame.right:g}"
    lines.append(" " * (room + 2) + first + last.rjust(max(columns - len(first), len(last) + 1)))
    return lines


def _dots(curve: Curve, frame: Frame, columns: int, rows: int) -> list[set[int]]:
    """Rows (0 at the top) that are set in each column; neighbouring points are joined."""
    scale = (rows - 1) / (frame.high - frame.low)
    dots: list[set[int]] = [set() for _ in range(columns)]
    before: tuple[int, float] | None = None  # column and value
    for at, pair in enumerate(columns_of(curve, frame, columns)):
        if pair is None:
            continue
        low, high = pair
        if before is not None:
            step = (low - before[1]) / (at - before[0])
            for between in range(before[0] + 1, at):
                dots[between].add(round((frame.high - before[1] - step * (between - before[0])) * scale))
            if before[0] == at - 1:
                low, high = min(low, before[1]), max(high, before[1])
        dots[at].update(range(round((frame.high - high) * scale), round((frame.high - low) * scale) + 1))
        before = (at, (pair[0] + pair[1]) / 2)
    return dots


def _braille_rows(curve: Curve, frame: Frame, columns: int, rows: int) -> list[str]:
    cells = [[_BLANK] * columns for _ in range(rows)]
    for x, column in enumerate(_dots(curve, frame, 2 * columns, 4 * rows)):
        for y in column:
            cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
    return ["".join(" " if cell == _BLANK else chr(cell) for cell in row) for row in cells]


def _ascii_rows(curve: Curve, frame: Frame, columns: int, rows: int) -> list[str]:
    dots = _dots(curve, frame, columns, rows)
    return ["".join("*" if row in column else " " for column in dots) for row in range(rows)]


def svg(title: str, panels: Sequence[tuple[str, Sequence[Curve]]]) -> str:
    """A picture with one panel for each name; no script, nothing loaded from elsewhere."""
    height = MARGIN + len(panels) * (HEIGHT + MARGIN)
    parts = [_panel(name, curves, MARGIN + at * (HEIGHT + MARGIN)) for at, (name, curves) in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text x="{MARGIN}" y="24" font-size="16">{_text(title)}</text>{"".join(parts)}</svg>'
    )


def _text(text: str) -> str:
    """Names are anybody's: a picture with a control character in it is none."""
    return escape(_NO_XML.sub("\ufffd", text))


def _panel(name: str, curves: Sequence[Curve], top: int) -> str:
    frame, bottom = frame_of(curves), top + HEIGHT
    head = f'<text x="{MARGIN}" y="{top - 8}" font-weight="bold">{_text(name)}</text>'
    if frame is None:
        return f'{head}<text x="{MARGIN}" y="{top + 14}">no finite value</text>'
    names = [_shortened(curve.name) for curve in curves] if len(curves) > 1 else []
    right = min(WIDTH - MARGIN, WIDTH - 36 - NAME_PX * max(map(len, names), default=0))
    axes = (
        f'<path d="M{MARGIN},{top} V{bottom} H{right}" fill="none" stroke="#333333"/>'
        f'<text x="{MARGIN - 6}" y="{top + 10}" text-anchor="end">{frame.high:.4g}</text>'
        f'<text x="{MARGIN - 6}" y="{bottom}" text-anchor="end">{frame.low:.4g}</text>'
        f'<text x="{MARGIN}" y="{bottom + 16}">{frame.left:g}</text>'
        f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{frame.right:g}</text>'
    )
    lines = []
    for at, curve in enumerate(curves):
        stroke = f'stroke="{COLOURS[at % len(COLOURS)]}" stroke-dasharray="{DASHES[at % len(DASHES)] or "none"}"'
        lines.append(f'<polyline points="{_polyline(curve, frame, top, right)}" fill="none" {stroke}/>')
        y = top + 8 + 15 * at
        if names and at < MOST_NAMED:
            lines.append(f'<path d="M{right + 6},{y} h22" {stroke} stroke-width="2"/>')
            lines.append(f'<text x="{right + 32}" y="{y + 4}">{_text(names[at])}</text>')
    if len(names) > MOST_NAMED:
        lines.append(f'<text x="{right + 32}" y="{bottom + 8}">{len(names) - MOST_NAMED} more</text>')
    return head + axes + "".join(lines)


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _polyline(curve: Curve, frame: Frame, top: int, right: int) -> str:
    wide, scale = (right - MARGIN) / COLUMNS, HEIGHT / (frame.high - frame.low)
    places = []
    for at, pair in enumerate(columns_of(curve, frame, COLUMNS)):
        for value in dict.fromkeys(pair or ()):
            places.append(f"{MARGIN + (at + 0.5) * wide:.1f},{top + (frame.high - value) * scale:.1f}")
    return " ".join(places)
