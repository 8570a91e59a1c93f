"""Sweeps and comparisons for pages: `sweep ls`, `sweep status` and `compare` as data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from longboat.comparison.code import code_change, code_of
from longboat.comparison.differences import CodeChange, compare_runs
from longboat.core.errors import LongboatError, UsageError
from longboat.engines.engine import Engine
from longboat.engines.shared.home import Home
from longboat.metrics.values import RunMetrics
from longboat.multicluster.ask import set_price
from longboat.sdk.records import plain
from longboat.sdk.sweeps import OpenSweep, all_sweeps, ensure_driven, find_sweep, stop_sweep
from longboat.sweeps.report import SweepReport, report_of
from longboat.sweeps.trials import FINAL
from longboat.web.places import LOCAL, ShownPlace, find_place
from longboat.web.views.curves import finite, thinned

MOST_RUNS = 20
"""Of a comparison, as on the command line."""


def sweeps(places: Sequence[ShownPlace], *, readonly: bool) -> dict[str, Any]:
    """All sweeps of all places, the newest first in each; those that nobody drives are driven on."""
    home, shown, problems = Home(), [], list[str]()
    for place in places:
        try:
            known = all_sweeps(home, searched(place), problems)
        except LongboatError as error:
            problems.append(f"{place.title}: {error.message}")
            continue
        for sweep in known:
            if sweep.is_in_cluster != (place.kind != LOCAL):
                continue  # begun from here in a cluster: it is listed there
            try:
                report = _look(home, sweep, readonly=readonly)
            except LongboatError as error:  # one that is damaged or just removed takes no other away
                problems.append(error.message)
                continue
            entry = plain(report)
            entry.pop("trials")
            shown.append({"cluster": place.name, **entry, "counts": counts(report)})
    return {"sweeps": shown, "problems": problems}


def one_sweep(places: Sequence[ShownPlace], cluster: str, name: str, *, readonly: bool) -> dict[str, Any]:
    place, home = find_place(places, cluster), Home()
    report = _look(home, find_sweep(home, name, place=searched(place), is_whole=True), readonly=readonly)
    return {"cluster": place.name, **plain(report), "counts": counts(report)}


def end_sweep(place: ShownPlace, name: str) -> dict[str, str]:
    """`sweep stop --no-wait`: no trial starts any more, those under way get their grace."""
    home = Home()
    sweep = find_sweep(home, name, place=searched(place), is_whole=True)
    stop_sweep(sweep)
    ensure_driven(home, sweep)  # one whose driver is gone would heed nobody
    return {"cluster": place.name, "name": sweep.name}


def searched(place: ShownPlace) -> Engine | None:
    """Where sweeps are looked for: the home of this machine, or a cluster."""
    return None if place.kind == LOCAL else place.engine


def _look(home: Home, sweep: OpenSweep, *, readonly: bool) -> SweepReport:
    state = sweep.state()
    if not readonly and not state.is_final:
        ensure_driven(home, sweep)
    return report_of(sweep.record(), state)


def counts(report: SweepReport) -> dict[str, int]:
    by_phase = Counter(trial.phase for trial in report.trials)
    ended = sum(count for phase, count in by_phase.items() if phase in FINAL)
    return {
        "ended": ended,
        "failed": by_phase["failed"],
        "pruned": by_phase["pruned"],
        "waiting": by_phase["pending"],
        "running": len(report.trials) - ended - by_phase["pending"],
    }


def compare(places: Sequence[ShownPlace], ids: Sequence[str]) -> dict[str, Any]:
    """Runs side by side, of one or of several places."""
    chosen = list(dict.fromkeys(ids))
    if not 2 <= len(chosen) <= MOST_RUNS:
        raise UsageError(f"{len(chosen)} runs to compare, expected 2 to {MOST_RUNS}", hint="run=CLUSTER/ID, repeated")
    pairs = [(find_place(places, text.partition("/")[0]), text.partition("/")[2]) for text in chosen]
    statuses = [place.engine.status(run) for place, run in pairs]
    metrics = [place.engine.metrics_of(run) for place, run in pairs]
    prices = [set_price(place.engine) for place, _ in pairs]
    comparison = compare_runs(statuses, metrics, code_changes(pairs), time.time(), prices=prices)
    return {"ids": chosen, **plain(comparison), "curves": shared_curves(metrics)}


def code_changes(pairs: Sequence[tuple[ShownPlace, str]]) -> list[CodeChange]:
    home = Home()
    first, *others = [code_of(place.engine, home, run) for place, run in pairs]
    return [code_change(home, run, first, other) for (_, run), other in zip(pairs[1:], others)]


def shared_curves(metrics: Sequence[RunMetrics]) -> dict[str, list[list[list[float | None]]]]:
    """By metric, one curve for each run, empty where it has none. Pure."""
    names = dict.fromkeys(name for each in metrics for name in each.series)
    return {
        name: [finite([(point[0], point[2]) for point in thinned(each.series.get(name, ()))]) for each in metrics]
        for name in names
    }
