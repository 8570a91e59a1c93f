"""`longboat top`: what runs now, what it uses, and who has which GPU."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence

import click

from longboat.cli.commands.runs.ps import run_record
from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, write
from longboat.cli.output.tables import cut, paint_phase, table
from longboat.cli.output.terminal import clean, is_terminal, paint, say
from longboat.cli.output.times import show_duration
from longboat.cli.output.watching import CLEAR_ALL, HOME_AND_CLEAR
from longboat.core.errors import INTERRUPTED_EXIT, EngineError
from longboat.core.resources import show_quantity
from longboat.core.runs import RunStatus
from longboat.core.words import three_digits
from longboat.metrics.usage import total_usage
from longboat.metrics.values import Activity, GpuUse

LOOK_S = 3.0
"""Ranks are sampled every five seconds; a cluster is asked through its API server."""
HEAD = (
    "NAME",
    "USER",
    "PHASE",
    "NODES",
    "GPUS",
    "TIME",
    "STEP",
    "STEPS/S",
    "CPU",
    "MEMORY",
    "GPU%",
    "GPU MEM",
    "WATTS",
)
GPU_HEAD = ("NODE", "GPU", "MODEL", "USE%", "MEMORY", "WATTS", "TEMP", "RUN", "USER", "RANKS")


@click.command("top", short_help="Watch all runs and GPUs, and who uses them.")
@click.option("--once", is_flag=True, help="Print once and end; so does output that is not a terminal.")
@output_option("table", "json")
@engine_options
def command(once: bool, output: str) -> int:
    """Watch the runs that have not ended with what they use, and the GPUs with who has them, until Ctrl-C."""
    place = open_engine()
    if output == "json":
        write(record(place.activity()), "json")
        return 0
    if once or not is_terminal(sys.stdout):
        print("\n".join(screen(place.activity(), time.time(), width=None)))
        return 0
    is_first, activity, trouble = True, Activity(), ""
    try:
        while True:
            try:
                activity, trouble = place.activity(), ""
            except EngineError as error:
                if is_first:
                    raise
                trouble = error.message
            draw(activity, trouble, is_first=is_first)
            is_first = False
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        say("")
        return INTERRUPTED_EXIT


def record(activity: Activity) -> dict[str, object]:
    """`top -o json`: runs as in `ps -o json`, with what they use, and GPUs."""
    runs = [{**run_record(run), "usage": plain(total_usage(run))} for run in activity.runs]
    return {"runs": runs, "gpus": plain(activity.gpus)}


def draw(activity: Activity, trouble: str, *, is_first: bool) -> None:
    """Redraw the screen in one write, so that it never flickers."""
    size = shutil.get_terminal_size()
    lines = screen(activity, time.time(), width=size.columns or None)
    if trouble:
        lines.insert(0, cut(f"{clean(trouble)}; still trying", size.columns or None))
    most = max(size.lines - 1, 1)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"... and {len(lines) - most + 1} more lines"]
    print((CLEAR_ALL if is_first else HOME_AND_CLEAR) + "\n".join(lines), flush=True)


def screen(activity: Activity, now: float, *, width: int | None) -> list[str]:
    """All that is shown, as lines."""
    runs = sorted(activity.runs, key=lambda run: run.phase == "pending")
    running = sum(run.phase != "pending" for run in runs)
    used = sum(bool(gpu.run) for gpu in activity.gpus)
    head = f"{running} running, {len(runs) - running} waiting, {used} of {len(activity.gpus)} GPUs in use"
    lines = [paint(head, "bold", sys.stdout)]
    if runs:
        lines += ["", *_painted(table(HEAD, [row(run, now) for run in runs], width=width))]
    notes = [clean(f"{run.name}: {note}") for run in runs for note in (*run.findings, run.reason) if note]
    if notes:
        lines += ["", *(cut(note, width) for note in notes)]
    if activity.gpus:
        lines += ["", *_painted(table(GPU_HEAD, [gpu_row(gpu) for gpu in activity.gpus], width=width))]
    return lines


def _painted(lines: Sequence[str]) -> list[str]:
    return [
        paint_phase(line, sys.stdout) if number else paint(line, "bold", sys.stdout)
        for number, line in enumerate(lines)
    ]


def row(run: RunStatus, now: float) -> tuple[object, ...]:
    usage = total_usage(run)
    return (
        run.name,
        run.user,
        run.phase,
        run.nodes,
        run.gpus,
        show_duration(now - run.started) if run.started else None,
        run.step,
        number(run.steps_per_s),
        number(usage.cpu),
        quantity(usage.memory),
        number(usage.gpu),
        quantity(usage.gpu_memory),
        number(usage.gpu_power),
    )


def gpu_row(gpu: GpuUse) -> tuple[object, ...]:
    memory = quantity(gpu.memory)
    total = quantity(gpu.memory_total)
    return (
        gpu.node,
        gpu.number or gpu.uuid,
        gpu.model,
        number(gpu.use),
        f"{memory or '-'}/{total}" if total else memory,
        number(gpu.power),
        number(gpu.temperature),
        gpu.run or "free",
        gpu.user,
        ", ".join(map(str, gpu.ranks)),
    )


def number(value: float | None) -> str | None:
    return None if value is None else three_digits(value)


def quantity(value: float | None) -> str | None:
    return None if value is None else show_quantity(round(value))
