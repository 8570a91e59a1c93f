"""`longboat ps --on A,B`: the runs of several places in one list, each with where it is."""

from __future__ import annotations

import time
from collections.abc import Callable

from longboat.cli.commands.runs.ps import HEAD, WIDE_HEAD, row, run_record
from longboat.cli.input.engine_option import open_places
from longboat.cli.output.formats import show
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import note, say
from longboat.core.errors import UsageError
from longboat.core.runs import RunStatus


def list_several(wanted: Callable[[RunStatus, float], bool], output: str, watch: bool) -> int:
    """Exit code 0 also where some do not answer: they are named. Where none does, the first error is raised."""
    from longboat.multicluster.ask import NamedEngine, answers_of

    if watch:
        raise UsageError("--watch takes one place", hint="name one of them: --on NAME")
    places, now = open_places(), time.time()

    def look(place: NamedEngine) -> list[RunStatus]:
        runs = [run for run in place.engine.list() if wanted(run, now)]
        return list(place.engine.with_steps(runs)) if output in ("wide", "json", "yaml") else runs

    answers = answers_of(places, look, lambda name, error: note(f"{name} is not listed: {error.message}"))
    runs = [(place.name, run) for place, answer in answers for run in answer]
    runs.sort(key=lambda pair: (-pair[1].created, pair[1].name, pair[0]))
    if output == "name":
        for _, run in runs:
            print(run.name)
        return 0
    show(
        runs,
        output,
        record=lambda pair: {"on": pair[0], **run_record(pair[1])},
        tables=lambda wide: print_placed(runs, wide=wide, now=now),
    )
    return 0


def print_placed(runs: list[tuple[str, RunStatus]], *, wide: bool, now: float) -> None:
    if not runs:
        say("no runs in any of them")
        return
    head = WIDE_HEAD if wide else HEAD
    rows = [(run.name, name, *row(run, wide=wide, now=now)[1:]) for name, run in runs]
    print_table((head[0], "ON", *head[1:]), rows)
