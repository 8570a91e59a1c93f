"""`make bench`: measures everything in one go, prints a table, writes bench/results.json.

python bench/run.py [PART...]   measure all parts, or only these (the other results are kept)
python bench/run.py --docs      write the table of results.json into docs/performance.md, measure nothing

Each part is a module beside this one with `measure() -> dict[str, float]`. Nothing here judges a figure.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
DOCS = HERE.parent / "docs" / "performance.md"
BEGIN, END = "<!-- results: begin, written by bench/run.py --docs -->", "<!-- results: end -->"

PARTS = {
    "peers": "Start-up and small jobs, against peers (seconds)",
    "startup": "Start-up of the command line",
    "queued": "Queued and idle runs",
    "bundles": "Bundles",
    "tee": "Log throughput",
}
LABELS = {"tee_mb_s": "the launcher's tee, MB/s", "cat_mb_s": "cat, MB/s", "tee_vs_cat": "tee / cat"}
WHO = ("bare python", "longboat", "torchx", "submitit")


def machine() -> dict[str, str]:
    model = "unknown"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or model
    return {
        "cores": str(os.cpu_count()),
        "processor": model,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def matrix(values: dict[str, float]) -> list[list[str]]:
    """`what/who` as one row per thing and one column per contender, with how many times longer the peers take."""
    rows = [["", *WHO, "torchx / longboat", "submitit / longboat"]]
    for what in dict.fromkeys(name.partition("/")[0] for name in values):
        cells = [values.get(f"{what}/{who}") for who in WHO]
        own = values.get(f"{what}/longboat")
        ratios = [f"{cell / own:.1f} x" if cell and own else "-" for cell in cells[2:]]
        rows.append([what, *(number(cell) if cell is not None else "-" for cell in cells), *ratios])
    return rows


def listing(values: dict[str, float]) -> list[list[str]]:
    return [["", "value"], *([LABELS.get(name, name), number(value)] for name, value in values.items())]


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def tables(results: dict[str, Any]) -> str:
    """All results as Markdown, which reads well on a terminal too."""
    about = results["machine"]
    lines = [
        f"Measured {results['measured']} on {about['cores']} cores ({about['processor']}), {about['system']}, "
        f"Python {about['python']}. Load average before the start: {about['load']}, which should be near 0."
    ]
    for part, title in PARTS.items():
        values = results["parts"].get(part)
        if not values:
            continue
        rows = matrix(values) if part == "peers" else listing(values)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        rows.insert(1, ["-" * width for width in widths])
        lines += ["", f"### {title}", ""]
        lines += ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def with_tables(page: str, results: dict[str, Any]) -> str:
    """The page with the part between its two markers replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{DOCS} lacks its two markers")
    return f"{head}{BEGIN}\n{tables(results)}{END}{tail}"


def measure(chosen: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {"parts": {}}
    about = machine()  # before our own work adds to the load
    if chosen and RESULTS.exists():
        results = json.loads(RESULTS.read_text())
    for part in chosen or PARTS:
        if not (HERE / f"{part}.py").exists():
            raise SystemExit(f"no such part: {part}; there are: {', '.join(PARTS)}")
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        results["parts"][part] = dict(importlib.import_module(part).measure())
    results["machine"] = about
    results["measured"] = time.strftime("%Y-%m-%d", time.gmtime())
    return results


def main(arguments: list[str]) -> None:
    sys.path.insert(0, str(HERE))
    if arguments == ["--docs"]:
        DOCS.write_text(with_tables(DOCS.read_text(), json.loads(RESULTS.read_text())))
        return
    results = measure(arguments)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(tables(results))


if __name__ == "__main__":
    main(sys.argv[1:])
