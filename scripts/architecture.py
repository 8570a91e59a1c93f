"""Draws docs/contributing/architecture.svg from the import graph: packages in their layers, arrows to what they import.

An arrow that follows from others (A imports B, B imports C, so A may import C) is left out. Below the name of a package
are its folders. `--check` writes nothing and fails when the picture or the table of folders is not current.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

from import_graph import folder_imports, parse

DOCS = Path(__file__).resolve().parent.parent / "docs" / "contributing"
PICTURE, PAGE = DOCS / "architecture.svg", DOCS / "architecture.md"
BEGIN, END = "<!-- folders: python scripts/architecture.py -->", "<!-- end of folders -->"
# Rows of the picture from top to bottom, with the share of the width; a share without a name is left free for arrows.
# The launcher imports nothing of ours: engines start it as a program.
ROWS = [
    [("cli", 1)],
    [("web", 1)],
    [("sdk", 1)],
    [
        ("sweeps", 1),
        ("comparison", 1),
        ("multicluster", 1),
        ("serving", 1),
        ("workbench", 1),
        ("doctor", 1),
        ("simulator", 1),
    ],
    [("clusters", 1), ("autoscaler", 2)],
    [("engines", 6), ("launcher", 1)],
    [("clouds", 1), ("kubeapi", 1), ("fitting", 1), ("specs", 1), ("storage", 1)],
    [("metrics", 1), ("", 2), ("bundles", 1)],
    [("core", 1)],
]
WIDTH, MARGIN, GAP, LINE, LETTER = 1080, 20, 46, 17, 6.9
COLOURS = {"cli": "#e3edf7", "core": "#eeeeee", "launcher": "#fbeedb"}


def packages(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between top packages; what `import longboat` loads when it is used is no dependency."""
    result: dict[str, set[str]] = {folder.split(".")[0]: set() for folder in graph if folder}
    for folder, others in graph.items():
        top = folder.split(".")[0]
        if top:
            result[top] |= {other.split(".")[0] for other in others} - {top, ""}
    return result


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    def reach(start: str) -> set[str]:
        return graph[start].union(*(reach(other) for other in graph[start]))

    return {name: others - set().union(*(reach(other) for other in others)) for name, others in graph.items()}


def label_lines(package: str, folders: list[str], width: float) -> list[str]:
    """The folders of a package, as lines that fit into its box."""
    lines, most = [""], int((width - 20) / LETTER)
    for folder in folders:
        word = folder.removeprefix(package + ".").replace(".", "/")
        if len(lines[-1]) + len(word) + 2 > most and lines[-1]:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + word
    return [line for line in lines if line]


def folders_of(package: str, graph: dict[str, set[str]]) -> list[str]:
    return sorted(folder for folder in graph if package and folder.startswith(package + "."))


def picture(graph: dict[str, set[str]]) -> str:
    tops = packages(graph)
    missing = set(tops) ^ {name for row in ROWS for name, _ in row if name}
    if missing:
        raise SystemExit(f"scripts/architecture.py: ROWS and src/longboat differ in {', '.join(sorted(missing))}")
    boxes, parts, y = {}, [], MARGIN
    for row in ROWS:
        share = (WIDTH - 2 * MARGIN + GAP) / sum(shares for _, shares in row)
        widths = {name: share * shares - GAP for name, shares in row}
        labels = {name: label_lines(name, folders_of(name, graph), widths[name]) for name, _ in row}
        height = 34 + LINE * max(map(len, labels.values()))
        x: float = MARGIN
        for name, _ in row:
            if name:
                boxes[name] = (x, y, widths[name], height)
                parts.append(box(name, labels[name], boxes[name]))
            x += widths[name] + GAP
        y += height + GAP
    arrows = [
        arrow(boxes[name], boxes[other]) for name, others in sorted(reduced(tops).items()) for other in sorted(others)
    ]
    height = y - GAP + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="Helvetica, Arial, sans-serif" text-anchor="middle">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    return "\n".join([head, *arrows, *parts, "</svg>", ""])


def box(name: str, lines: list[str], place: tuple[float, float, float, float]) -> str:
    x, y, width, height = place
    middle = x + width / 2
    texts = [f'<text x="{middle:.0f}" y="{y + 22:.0f}" font-size="16" font-weight="bold">{escape(name)}</text>']
    for number, line in enumerate(lines):
        at = y + 24 + LINE * (number + 1)
        texts.append(f'<text x="{middle:.0f}" y="{at:.0f}" font-size="12">{escape(line)}</text>')
    fill = COLOURS.get(name, "#f4f7f1")
    frame = (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6" fill="{fill}" stroke="#777"/>'
    )
    return "\n".join([frame, *texts])


def arrow(start: tuple[float, float, float, float], end: tuple[float, float, float, float]) -> str:
    """From the bottom of one box to the top of another, at the places of both that are nearest to each other."""
    left, right = max(start[0], end[0]), min(start[0] + start[2], end[0] + end[2])
    if left < right:
        x1 = x2 = (left + right) / 2
    else:
        x1, x2 = (start[0] + start[2] - 30, end[0] + 30) if start[0] < end[0] else (start[0] + 30, end[0] + end[2] - 30)
    y1, y2 = start[1] + start[3], end[1]
    return f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}" stroke="#555" fill="none" marker-end="url(#tip)"/>'


def table(graph: dict[str, set[str]]) -> str:
    """One line for each folder inside of a package: which others of the package it imports, but those around it."""
    rows = ["| folder | imports |", "|---|---|"]
    for folder in sorted(graph):
        top = folder.split(".")[0] + "."
        inside = sorted(other for other in graph[folder] if other.startswith(top) and not is_around(other, folder))
        names = ", ".join(
            f"`{other.removeprefix(top).removeprefix('kubernetes.').replace('.', '/')}`" for other in inside
        )
        if "." in folder:
            rows.append(f"| `{folder.replace('.', '/')}` | {names or 'none'} |")
    return "\n".join(rows)


def is_around(folder: str, other: str) -> bool:
    return folder.startswith(other + ".") or other.startswith(folder + ".")


def main() -> int:
    graph = folder_imports(parse())
    page = PAGE.read_text(encoding="utf-8")
    between = f"{BEGIN}\n{table(graph)}\n{END}"
    files = {PICTURE: picture(graph), PAGE: re.sub(f"{BEGIN}.*{END}", lambda _: between, page, flags=re.S)}
    if "--check" in sys.argv:
        stale = [
            str(file) for file, text in files.items() if not file.exists() or file.read_text(encoding="utf-8") != text
        ]
        print("\n".join(f"{file} is not current; type: python scripts/architecture.py" for file in stale))
        return int(bool(stale))
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
