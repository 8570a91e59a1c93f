"""Results as Markdown, which reads well on a terminal too. Pure."""

from __future__ import annotations

from collections.abc import Sequence

LABELS = {
    "tee_mb_s": "the launcher's tee, MB/s",
    "cat_mb_s": "cat, MB/s",
    "tee_vs_cat": "tee / cat",
    "direct_requests_s": "the server directly, requests/s",
    "proxy_requests_s": "through the proxy, requests/s",
    "proxy_vs_direct": "proxy / directly",
    "direct_p99_ms": "99 % of requests directly, ms",
    "proxy_p99_ms": "99 % through the proxy, ms",
}
WIDEST = 159  # lines of the documentation are below 160 characters
WHO = ("bare python", "longboat", "torchx", "submitit")
Row = Sequence[str]


def of_part(part: str, values: dict[str, float]) -> list[str]:
    """The tables of one part: of plain figures, and of figures named `TITLE: ROW/COLUMN`, by their title."""
    if part == "peers":
        return table(matrix(values))
    lines = []
    plain = {name: value for name, value in values.items() if "/" not in name.partition(": ")[2]}
    if plain:
        lines += table([["", "value"], *([LABELS.get(name, name), number(value)] for name, value in plain.items())])
    for title in dict.fromkeys(name.partition(": ")[0] for name in values if name not in plain):
        cells = {name.partition(": ")[2]: value for name, value in values.items() if name.startswith(f"{title}: ")}
        drawn = upright(grid(title, cells))
        lines += ["", *drawn] if lines else drawn
    return lines


def upright(rows: Sequence[Row]) -> list[str]:
    """A table whose lines would be too long has its columns as rows."""
    drawn = table(rows)
    return drawn if len(drawn[0]) <= WIDEST else table(list(zip(*rows)))


def grid(title: str, cells: dict[str, float]) -> list[Row]:
    """`row/column` as a table; what is not there is nothing."""
    columns = list(dict.fromkeys(name.partition("/")[2] for name in cells))
    rows = list(dict.fromkeys(name.partition("/")[0] for name in cells))
    body = [[row, *(number(cells.get(f"{row}/{column}", 0.0)) for column in columns)] for row in rows]
    return [[title, *columns], *body]


def matrix(values: dict[str, float]) -> list[Row]:
    """`what/who` as one row per thing and one column per contender, with how many times longer the peers take."""
    rows: list[Row] = [["", *WHO, "torchx / longboat", "submitit / longboat"]]
    for case in dict.fromkeys(name.partition("/")[0] for name in values):
        cells = [values.get(f"{case}/{who}") for who in WHO]
        own = values.get(f"{case}/longboat")
        ratios = [f"{cell / own:.1f} x" if cell and own else "-" for cell in cells[2:]]
        rows.append([case, *(number(cell) if cell is not None else "-" for cell in cells), *ratios])
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    ruled = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in ruled]


def number(value: float) -> str:
    """Three significant digits, without an exponent; whole numbers as they are."""
    if value == int(value):
        return f"{int(value):,}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"
