"""A comparison as one page of HTML: nothing is loaded from elsewhere, no script, so that it can be mailed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from longboat.comparison.differences import RunComparison
from longboat.metrics.curves import Curve, svg
from longboat.metrics.values import RunMetrics

_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1f24;"
    "background:#fff}table{border-collapse:collapse;margin:1rem 0}th,td{text-align:left;padding:.25rem .75rem;"
    "border-bottom:1px solid #d0d7de;vertical-align:top}pre{background:#f6f8fa;padding:1rem;overflow:auto}"
    "svg{max-width:100%;height:auto}.wide{overflow:auto}th:first-child,td:first-child{color:#57606a;white-space:nowrap}"
    ".plus{color:#17703f}.minus{color:#b3261e}.place{color:#1a5fd0}"
)
_LINES = {"+": "plus", "-": "minus", "@": "place"}


def curve_panels(metrics: Sequence[RunMetrics]) -> list[tuple[str, list[Curve]]]:
    """One panel for each metric, one curve for each run, over its steps."""
    names = dict.fromkeys(name for each in metrics for name in each.series)
    return [
        (
            name,
            [
                Curve(each.run, [(step, value) for step, _, value in each.series[name]])
                for each in metrics
                if name in each.series
            ],
        )
        for name in names
    ]


def html_page(comparison: RunComparison, metrics: Sequence[RunMetrics], rows: Sequence[Sequence[Any]]) -> str:
    """`rows`: the table as the terminal shows it, the first of them the head."""
    title = escape(", ".join(comparison.runs))
    head, *body = ["".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in row) for tag, row in _tagged(rows)]
    table = f"<div class=wide><table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table></div>"
    diffs = "".join(
        f"<h2>Code of {escape(change.run)} against {escape(comparison.runs[0])}</h2><pre>{_coloured(change.diff)}</pre>"
        for change in comparison.code
        if change.diff
    )
    panels = curve_panels(metrics)
    curves = f"<h2>Curves</h2>{svg(', '.join(comparison.runs), panels)}" if panels else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>{table}{curves}{diffs}</body></html>"
    )


def _coloured(diff: str) -> str:
    return "\n".join(
        f'<span class="{_LINES[line[0]]}">{escape(line)}</span>' if line[:1] in _LINES else escape(line)
        for line in diff.split("\n")
    )


def _tagged(rows: Sequence[Sequence[Any]]) -> list[tuple[str, Sequence[Any]]]:
    return [("th" if number == 0 else "td", row) for number, row in enumerate(rows)]


def _cell(cell: Any) -> str:
    return escape("-" if cell is None or cell == "" else str(cell))
