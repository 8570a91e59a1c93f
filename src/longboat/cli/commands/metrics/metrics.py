"""`longboat metrics`: series of a run's numbers, as curves, tables or data."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click
import msgspec

from longboat.cli.input.arguments import output_option, run_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, write_csv
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import clean, is_terminal, paint, say
from longboat.core.errors import NotFound
from longboat.core.resources import show_quantity
from longboat.core.words import listing, nearest
from longboat.metrics.curves import Curve, svg, text_curve
from longboat.metrics.values import RunMetrics, Sample
from longboat.sdk.names import find_run

MOST_CURVES = 8
"""Without --metric: more curves than a screen or two are named only."""
CURVE_ROWS = 8
BYTES = ("memory", "gpu_memory", "network_in", "network_out", "disk_read", "disk_write")


@click.command("metrics", short_help="Show curves of a run: loss, GPUs, memory.")
@run_argument
@click.option("--metric", "names", multiple=True, metavar="NAME", help="Only this metric. Repeatable.")
@output_option("table", "json", "csv", "svg")
@engine_options
def command(run: str, names: Sequence[str], output: str) -> None:
    """Show the metrics of a run as curves: what its trainer reports, and what its ranks use. Without RUN: the latest.

    A trainer reports with longboat.step(n, loss=...); TensorBoard's event files are read too. Ranks are sampled every
    few seconds: cpu, memory, gpu, gpu_memory, gpu_power, gpu_throttle, disk_read, disk_write.
    """
    place = open_engine()
    metrics = chosen(place.metrics_of(find_run(place, run).name), names)
    if output == "json":
        print(msgspec.json.encode(plain(metrics)).decode())  # every field; not indented, for a series is long
    elif output == "csv":
        print_csv(metrics)
    elif output == "svg":
        print(svg(metrics.run, panels(metrics)))
    else:
        print_metrics(metrics, is_all=not names)


def chosen(metrics: RunMetrics, names: Sequence[str]) -> RunMetrics:
    """Only these metrics; all where none is named. Raises NotFound for a name that the run does not have."""
    if not names:
        return metrics
    measures = {name for samples in metrics.system.values() for name in samples}
    measures |= {name for samples in metrics.nodes.values() for name in samples}
    for name in names:
        if name not in metrics.series and name not in measures:
            known = [*metrics.series, *sorted(measures)]
            near = nearest(name, known, 3)
            hint = f"did you mean {listing(near, 3)}?" if near else f"it has {listing(known, 12) or 'none yet'}"
            raise NotFound(f"{metrics.run} has no metric {name!r}", hint=hint)
    keep = set(names)
    return msgspec.structs.replace(
        metrics,
        series={name: points for name, points in metrics.series.items() if name in keep},
        system={key: _only(samples, keep) for key, samples in metrics.system.items() if _only(samples, keep)},
        nodes={key: _only(samples, keep) for key, samples in metrics.nodes.items() if _only(samples, keep)},
    )


def _only(samples: dict[str, tuple[Sample, ...]], keep: set[str]) -> dict[str, tuple[Sample, ...]]:
    return {name: values for name, values in samples.items() if name in keep}


def print_metrics(metrics: RunMetrics, *, is_all: bool) -> None:
    if not (metrics.series or metrics.system or metrics.nodes):
        say(f"{metrics.run} has reported no metric yet: longboat.step(n, loss=...), or TensorBoard's event files")
        return
    size = shutil.get_terminal_size()
    width = min(size.columns or 80, 120) if is_terminal(sys.stdout) else 80
    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
    drawn = [Curve(name, [(step, value) for step, _, value in points]) for name, points in metrics.series.items()]
    if not is_all:
        drawn += [curve for _, curves in system_panels(metrics) for curve in curves]
    for curve in drawn[:MOST_CURVES] if is_all else drawn:
        print(paint(headline(curve), "bold", sys.stdout))
        print("\n".join(text_curve(curve, width=width, height=CURVE_ROWS, is_ascii=is_ascii)))
        print()
    if is_all and len(drawn) > MOST_CURVES:
        rest = listing([clean(curve.name) for curve in drawn[MOST_CURVES:]], 20)
        print(f"{len(drawn) - MOST_CURVES} more, with --metric: {rest}\n")
    if is_all:
        print_system(metrics)


def headline(curve: Curve) -> str:
    """Name, last value and extremes of a curve in one line."""
    finite = [(value, x) for x, value in curve.points if value - value == 0]
    if not curve.points:
        return clean(curve.name)
    x, last = curve.points[-1]
    words = [f"{clean(curve.name)}  last {last:g} at {x:g}"]
    if finite:
        low, high = min(finite), max(finite)
        words.append(f"min {low[0]:g} at {low[1]:g}, max {high[0]:g} at {high[1]:g}")
    if len(finite) < len(curve.points):
        words.append(f"{len(curve.points) - len(finite)} not finite")
    return ", ".join(words)


def print_system(metrics: RunMetrics) -> None:
    """The latest samples of ranks and nodes, and their means."""
    has_samples = False
    for title, by_key in (("RANK", metrics.system), ("NODE", metrics.nodes)):
        names = list(dict.fromkeys(name for samples in by_key.values() for name in samples))
        rows = [
            (key, *(_latest_and_mean(name, samples.get(name, ())) for name in names)) for key, samples in by_key.items()
        ]
        if names:  # a run of a second has no sample yet
            has_samples = True
            print_table((title, *(name.upper().replace("_", " ") for name in names)), rows)
            print()
    if has_samples:
        print("last sample / mean of the run; cpu in cores, gpu in percent, power in watts, rates per second")


def _latest_and_mean(name: str, samples: Sequence[Sample]) -> str | None:
    if not samples:
        return None
    mean = sum(value for _, value in samples) / len(samples)
    return f"{show_number(name, samples[-1][1])} / {show_number(name, mean)}"


def show_number(name: str, value: float) -> str:
    return show_quantity(round(value)) if name in BYTES or name.endswith("_total") else f"{value:.4g}"


def system_panels(metrics: RunMetrics) -> list[tuple[str, list[Curve]]]:
    """One panel for each measure, one curve for each rank or node, over the seconds since the first sample."""
    panels: dict[str, list[Curve]] = {}
    everything = [*metrics.system.items(), *metrics.nodes.items()]
    first = min((values[0][0] for _, samples in everything for values in samples.values() if values), default=0.0)
    for kind, by_key in (("rank", metrics.system), ("node", metrics.nodes)):
        for key, samples in by_key.items():
            for name, values in samples.items():
                curve = Curve(f"{name} of {kind} {key}", [(at - first, value) for at, value in values])
                panels.setdefault(f"{name} by {kind}", []).append(curve)
    return list(panels.items())


def panels(metrics: RunMetrics) -> list[tuple[str, list[Curve]]]:
    series = [
        (name, [Curve(name, [(step, value) for step, _, value in points])]) for name, points in metrics.series.items()
    ]
    return [*series, *system_panels(metrics)]


def print_csv(metrics: RunMetrics) -> None:
    """One row for each value; `of` is the rank or node of a sample, empty for what the trainer reported."""
    write_csv([("metric", "of", "step", "time", "value")])
    for name, points in metrics.series.items():
        write_csv((name, "", step, f"{at:.3f}", value) for step, at, value in points)
    for by_key in (metrics.system, metrics.nodes):
        for key, samples in by_key.items():
            for name, values in samples.items():
                write_csv((name, key, "", f"{at:.3f}", f"{value:g}") for at, value in values)
