"""Pictures as SVG, alone or in an HTML page: demand against capacity over time, and the curve of cost and wait.

No script, no font, nothing loaded from elsewhere. Long traces are cut into as many pieces as can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from longboat.core.errors import EngineError, UsageError
from longboat.simulator.results import GpuPoint, PolicyOutcome
from longboat.simulator.tuning import Trial

WIDTH, HEIGHT, MARGIN = 1000, 220, 60
PIECES = 800  # steps of a curve on a screen 1,000 units wide
SUFFIXES = (".svg", ".html")


def check_name(path: str) -> None:
    """Before a long replay, not after it."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a picture is an .svg or an .html file", hint="--picture demand.svg")


def write_picture(svg: str, path: str, title: str) -> None:
    text = svg
    if Path(path).suffix.lower() == ".html":
        head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
        text = f"<!doctype html><html><head>{head}</head><body>{svg}</body></html>\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as bad:
        raise EngineError(f"{path}: cannot be written: {bad.strerror}") from None


def demand_picture(outcomes: Sequence[PolicyOutcome], title: str) -> str:
    """One panel for each policy, over the same axes."""
    drawn = [outcome for outcome in outcomes if outcome.points]
    first = min((outcome.points[0].moment for outcome in drawn), default=0.0)
    last = max((policy_outcome.points[-1].moment for policy_outcome in drawn), default=1.0)
    high = max((max(point.capacity, point.demand) for outcome in drawn for point in outcome.points), default=1)
    panels = [
        _panel(outcome, index, first, max(last, first + 1.0), max(high, 1)) for index, outcome in enumerate(drawn)
    ]
    return _svg(panels, len(drawn) * (HEIGHT + MARGIN) + MARGIN, title)


def _panel(outcome: PolicyOutcome, index: int, first: float, last: float, high: int) -> str:
    top = MARGIN + index * (HEIGHT + MARGIN)
    pieces = _pieces(outcome.points, first, last)
    span = last - first

    def line(values: Sequence[int]) -> str:
        width = (WIDTH - 2 * MARGIN) / PIECES
        return " ".join(
            f"{MARGIN + number * width:.1f},{top + HEIGHT - value / high * HEIGHT:.1f}"
            for number, value in enumerate(values)
        )

    area = f"{MARGIN},{top + HEIGHT} {line([piece[0] for piece in pieces])} {WIDTH - MARGIN},{top + HEIGHT}"
    figures = outcome.figures
    name = escape(f"{outcome.policy}: {figures.gpu_hours_provisioned:,.0f} GPU-hours, wait p99 {figures.wait_p99_s} s")
    return (
        f'<text x="{MARGIN}" y="{top - 8}" font-weight="bold">{name}</text>'
        f'<polygon points="{area}" fill="#f4c27a"/>'
        f'<polyline points="{line([piece[1] for piece in pieces])}" fill="none" stroke="#14639c"/>'
        + _frame(top, f"{high:,} GPUs", f"{span / 86400:,.1f} days")
    )


def _pieces(points: Sequence[GpuPoint], first: float, last: float) -> list[tuple[int, int]]:
    """Capacity and demand, the highest of each piece of time."""
    pieces: list[tuple[int, int]] = []
    at = 0
    capacity = demand = 0
    for piece in range(PIECES):
        until = first + (last - first) * (piece + 1) / PIECES
        high = (capacity, demand)
        while at < len(points) and points[at].moment <= until:
            capacity, demand = points[at].capacity, points[at].demand
            high = (max(high[0], capacity), max(high[1], demand))
            at += 1
        pieces.append(high)
    return pieces


def curve_picture(trials: Sequence[Trial], title: str) -> str:
    """GPU-hours to the right, the wait of the slowest percent upwards; those on the curve are joined."""
    top, height = MARGIN, 2 * HEIGHT
    most = max((trial.figures.gpu_hours_provisioned for trial in trials), default=1.0) or 1.0
    least = min((trial.figures.gpu_hours_provisioned for trial in trials), default=0.0)
    slow = max((trial.figures.wait_p99_s or 0.0 for trial in trials), default=1.0) or 1.0
    span = (most - least) or 1.0

    def place(trial: Trial) -> tuple[float, float]:
        share = (trial.figures.gpu_hours_provisioned - least) / span
        wait = (trial.figures.wait_p99_s or 0.0) / slow
        return MARGIN + share * (WIDTH - 3 * MARGIN), top + height - wait * height

    best = sorted(place(trial) for trial in trials if trial.is_best)
    parts = [
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in best)}" fill="none" stroke="#14639c"/>',
        _frame(top, f"{slow:,.0f} s wait p99", f"{least:,.0f} .. {most:,.0f} GPU-hours", height),
    ]
    for trial in trials:
        x, y = place(trial)
        colour = "#14639c" if trial.is_best else "#999999"
        label = escape(f"idle {trial.idle_s:g}s, spare {trial.spare}")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 6:.1f}" y="{y - 4:.1f}" font-size="10">{label}</text>')
    return _svg(parts, top + height + MARGIN, title)


def _frame(top: int, upwards: str, along: str, height: int = HEIGHT) -> str:
    bottom = top + height
    return (
        f'<path d="M{MARGIN},{top} V{bottom} H{WIDTH - MARGIN}" fill="none" stroke="#333333"/>'
        f'<text x="{MARGIN + 4}" y="{top + 12}" font-size="11">{escape(upwards)}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{bottom + 16}" font-size="11" text-anchor="end">{escape(along)}</text>'
    )


def _svg(parts: Sequence[str], height: int, title: str) -> str:
    legend = "filled: capacity (ordered, booting or ready); line: demand (running or waiting)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="13">'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text x="{MARGIN}" y="22" font-size="16">{escape(title)}</text>'
        f'<text x="{MARGIN}" y="38" font-size="11">{escape(legend)}</text>' + "".join(parts) + "</svg>\n"
    )
