"""`longboat compare`: runs side by side."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from longboat.cli.input.arguments import output_option, runs_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, write, write_csv
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import CONTROLS, clean, is_terminal, paint, say
from longboat.cli.output.times import show_duration
from longboat.comparison.code import AND_MORE, MOST_LINES, NOW, code_change, code_now, code_of
from longboat.comparison.differences import CodeChange, RunComparison, compare_runs
from longboat.comparison.page import curve_panels, html_page
from longboat.core.errors import NotFound, UsageError
from longboat.core.words import counted, listing
from longboat.engines.engine import Engine
from longboat.engines.shared.home import Home
from longboat.metrics.curves import Curve, frame_of, svg, text_curve
from longboat.metrics.values import RunMetrics
from longboat.multicluster.ask import set_price
from longboat.sdk.names import find_run

FIGURES = {"seconds": "time", "gpu_hours": "GPU-hours", "gpu_kwh": "GPU kWh", "exit_code": "exit code"}
"""Names of figures in a terminal; others, and those of -o csv, are as in -o json."""
MOST_RUNS = 20
"""A table has no more columns that anybody reads."""
MOST_CURVES = 4
"""Of the first metric, in a terminal."""
CURVE_ROWS = 5
MOST_PACKAGES = 20
"""That differ, in a terminal."""
WIDEST = 40
"""Characters of a cell; the whole value is in -o json."""
SHOWN_LINES = 120
"""Of a diff, some screens: folders that have nothing to do with each other differ in thousands."""


@click.command("compare", short_help="Put runs side by side: parameters, metrics, code.")
@runs_argument
@click.option("-l", "--label", metavar="K=V", help="Runs with this label.")
@click.option("--sweep", metavar="NAME", help="The trials of this sweep.")
@click.option("--diff/--no-diff", default=True, help="Show the lines of code that differ (default), or only the files.")
@click.option("--full-diff", is_flag=True, help=f"Show all lines of code that differ, not the first {SHOWN_LINES}.")
@output_option("table", "json", "csv", "svg", "html")
@engine_options
def command(
    runs: Sequence[str], label: str | None, sweep: str | None, diff: bool, full_diff: bool, output: str
) -> None:
    """Compare runs: what differs in their jobs and code, and metrics at the last step that all of them have reached.

    `compare RUN .` shows what has changed in the folder of its code since. -o html is one page that can be mailed.
    """
    place, home = open_engine(), Home()
    shown = (None if full_diff else SHOWN_LINES) if diff or full_diff else 0
    if NOW in runs:
        show_since(place, home, [run for run in runs if run != NOW], shown=shown, output=output)
        return
    if sweep and label:
        raise UsageError("--sweep and -l do not go together", hint=f"longboat compare -l {label}, or --sweep {sweep}")
    names = chosen(place, runs, label=f"sweep={sweep}" if sweep else label)
    if sweep and not names:
        raise NotFound(f"no sweep named {sweep!r} has trials here", hint="longboat sweep ls lists sweeps")
    check_count(names)
    statuses = [place.status(name) for name in names]
    metrics = [place.metrics_of(name) for name in names]
    first, *others = [code_of(place, home, name) for name in names]
    most = None if full_diff else MOST_LINES
    code = [code_change(home, name, first, other, most=most) for name, other in zip(names[1:], others)]
    comparison = compare_runs(statuses, metrics, code, time.time(), prices=[set_price(place)] * len(names))
    if output == "json":
        write(plain(comparison), "json")
    elif output == "csv":
        write_csv(table_of(comparison, is_whole=True, is_data=True))
    elif output == "svg":
        print(svg(", ".join(names), curve_panels(metrics)))
    elif output == "html":
        print(html_page(comparison, metrics, table_of(comparison, is_whole=True)))
    else:
        print_comparison(comparison, metrics, shown=shown)


def chosen(place: Engine, runs: Sequence[str], *, label: str | None) -> list[str]:
    """Names of the runs that are meant, each once."""
    if bool(runs) == (label is not None):
        raise UsageError("name the runs to compare, or -l LABEL, or --sweep NAME", hint="longboat compare RUN RUN")
    if label is None:
        names = list(dict.fromkeys(find_run(place, run).name for run in runs))
    else:
        key, equals, value = label.partition("=")
        listed = [run for run in place.list() if key in run.labels and (not equals or run.labels[key] == value)]
        names = [run.name for run in sorted(listed, key=lambda run: (run.created, run.name))]
    return names


def check_count(names: Sequence[str]) -> None:
    if not 2 <= len(names) <= MOST_RUNS:
        raise UsageError(
            f"{counted(len(names), 'run')} to compare, expected 2 to {MOST_RUNS}",
            hint="longboat ps -a lists runs; longboat sweep status shows the trials of a large sweep",
        )


def show_since(place: Engine, home: Home, runs: Sequence[str], *, shown: int | None, output: str) -> None:
    """Print what has changed in the folder of a run's code since it was submitted."""
    if len(runs) != 1:
        raise UsageError("one run can be compared with its folder", hint="longboat compare RUN .")
    if output not in ("table", "json"):
        raise UsageError(f"no {output} of a run and a folder: it has only its code to compare", hint="-o json")
    name = find_run(place, runs[0]).name
    now = code_now(place, home, name)
    change = code_change(home, NOW, code_of(place, home, name), now, most=None if shown is None else MOST_LINES)
    if output == "json":
        write(plain(change), "json")
    else:
        print_change(change, name, shown=shown)


def table_of(comparison: RunComparison, *, is_whole: bool = False, is_data: bool = False) -> list[tuple[Any, ...]]:
    """The comparison as rows, the first of them the head. `is_whole`: nothing is cut; `is_data`: names of -o json."""
    rows: list[tuple[Any, ...]] = [("", *comparison.runs)]
    for name, values in comparison.figures.items():
        if any(value is not None for value in values):
            is_time = name == "seconds" and not is_data
            shown = tuple(show_duration(value) for value in values) if is_time else values
            rows.append((name if is_data else FIGURES.get(name, name), *shown))
    for row in comparison.metrics:
        if row.step is not None:
            rows.append((f"{row.name} at step {row.step}", *map(_number, row.at_step)))
        rows.append((f"{row.name} at the end", *map(_number, row.last)))
    rows += [(name, *map(_words, values)) for name, values in comparison.differing.items()]
    rows += [(name.replace("_", " "), *values) for name, values in comparison.environment.items()]
    versions = list(comparison.packages.items())
    rows += [(f"package {name}", *values) for name, values in (versions if is_whole else versions[:MOST_PACKAGES])]
    if len(versions) > MOST_PACKAGES and not is_whole:
        rows.append((f"{len(versions) - MOST_PACKAGES} more packages", *["-o json"] * len(comparison.runs)))
    rows.append(("code", "first", *map(_code_words, comparison.code)))
    return rows if is_whole else [tuple(_short(cell) for cell in row) for row in rows]


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"


def _words(value: Any) -> Any:
    return shlex.join(map(str, value)) if isinstance(value, list) else value


def _short(cell: Any) -> Any:
    text = str(cell)
    return cell if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def _code_words(change: CodeChange) -> str:
    if not change.is_known:
        return "not known here"
    kinds = (("added", change.added), ("removed", change.removed), ("changed", change.changed))
    return ", ".join(f"{len(paths)} {word}" for word, paths in kinds if paths) or "the same"


def print_comparison(comparison: RunComparison, metrics: Sequence[RunMetrics], *, shown: int | None) -> None:
    head, *rows = table_of(comparison)
    print_table(head, rows)
    print_curves(curve_panels(metrics))
    for change in comparison.code:
        if change.added or change.removed or change.changed:
            print()
            print_change(change, comparison.runs[0], shown=shown)


def print_curves(panels: Sequence[tuple[str, Sequence[Curve]]]) -> None:
    """The first metric of the first runs that have it, below each other and to one scale."""
    drawn = ((name, [curve for curve in curves if frame_of([curve])]) for name, curves in panels)
    name, curves = next(((name, curves) for name, curves in drawn if curves), ("", []))
    width = min(shutil.get_terminal_size().columns or 80, 120) if is_terminal(sys.stdout) else 80
    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
    frame = frame_of(curves[:MOST_CURVES])
    for curve in curves[:MOST_CURVES]:
        print(f"\n{paint(f'{clean(name)} of {curve.name}', 'bold', sys.stdout)}")
        print("\n".join(text_curve(curve, width=width, height=CURVE_ROWS, is_ascii=is_ascii, frame=frame)))
    if len(curves) > MOST_CURVES:
        print(f"\n{clean(name)} of {counted(len(curves) - MOST_CURVES, 'more run')}: -o svg, -o html")


def print_change(change: CodeChange, against: str, *, shown: int | None) -> None:
    """Print which files differ, and so many lines of the diff; None: all of them."""
    if not change.is_known:
        say(f"the code of {against} is not on this machine, or no code travelled with it")
        return
    for word, paths in (("added", change.added), ("removed", change.removed), ("changed", change.changed)):
        if paths:
            print(f"{change.run} against {against}: {word} {listing([clean(path) for path in paths], 20)}")
    if not (change.added or change.removed or change.changed):
        print(f"{change.run} against {against}: the same code")
    lines = change.diff.split("\n") if change.diff and shown != 0 else []
    for line in lines[:shown]:
        print(line.translate({**CONTROLS, 9: "\t"}))
    if shown is not None and len(lines) > shown:
        rest = len(lines) - shown
        words = f"more than {rest - 1}" if lines[-1] == AND_MORE else str(rest)
        say(f"{words} more lines of this diff are not shown\nhint: --full-diff shows all of it")
