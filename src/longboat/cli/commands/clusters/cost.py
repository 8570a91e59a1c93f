"""`longboat cost`: GPU-hours asked for, held, used and idle, and what they cost."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import click

from longboat.cli.input.arguments import output_option, seconds
from longboat.cli.input.engine_option import chosen_places, engine_options
from longboat.cli.output.formats import plain, show, write_csv
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import note, say
from longboat.core.errors import LongboatError, UsageError
from longboat.core.runs import RunStatus
from longboat.engines.lifecycle.budgets import Budget, Period, budget_words
from longboat.multicluster.ask import NamedEngine, answers_of, ask_each
from longboat.multicluster.costs import CostRow, all_pools, grouped, names_of, total

HOURS = ("asked", "held", "used", "paid", "idle")
BY = re.compile(r"run|user|pool|label(=.+)?")


@click.command("cost", short_help="Add up GPU-hours and money, by run, user, label or pool.")
@click.option("--since", default="7d", show_default=True, metavar="TIME", callback=seconds, help="How far back.")
@click.option("--by", default="run", show_default=True, metavar="run|user|label[=KEY]|pool", help="What is one row.")
@click.option("--used", is_flag=True, help="Read in clusters too how much of it GPUs computed; slow.")
@output_option("table", "json", "yaml", "csv")
@engine_options
def command(since: float, by: str, used: bool, output: str) -> int:
    """Add up the GPU-hours of runs and what they cost. Runs that were removed are not counted.

    ASKED counts from the submission, HELD what attempts had, USED what the GPUs computed of it, IDLE the rest.
    By pool, PAID is how long the machines of today have existed, and IDLE what no run held of it.
    The price of a GPU-hour is `gpu_hour` of the settings, else that of the machine types.
    """
    if not BY.fullmatch(by):
        raise UsageError(f"--by {by}: not something to group by", hint="run, user, label, label=KEY or pool")
    now = time.time()
    period = Period(start=now - since, end=now)
    places = chosen_places(is_default_one=True)
    answers = answers_of(
        places,
        lambda place: costs_at(place, period, by, with_use=used or place.engine.name == "local"),
        lambda name, error: note(f"{name} is not counted: {error.message}"),
    )
    rows = [row for _, answer in answers for row in answer]
    code = show_costs(rows, by.partition("=")[0], output, is_several=len(places) > 1)
    if output == "table":
        tell_budgets([place for place, _ in answers], now, is_several=len(places) > 1)
    return code


def tell_budgets(places: Sequence[NamedEngine], now: float, *, is_several: bool) -> None:
    """How far the budgets are used up. `places`: those that answered; a silent one is not waited for again."""
    from longboat.sdk.places import budgets, budgets_at

    known, there = budgets(), ask_each(places, lambda place: budgets_at(place.engine))
    if not known and not any(answer[0] or answer[1] for answer in there if not isinstance(answer, LongboatError)):
        return
    answers = ask_each(places, lambda place: place.engine.list())
    runs = [run for answer in answers if not isinstance(answer, LongboatError) for run in answer]
    for budget in known:
        say_budget(budget, runs, now)
    for place, own, listed in zip(places, there, answers):
        if isinstance(own, LongboatError) or isinstance(listed, LongboatError):
            continue
        for budget in own[0]:
            say_budget(budget, listed, now, f"{place.name}: " if is_several else "")
        for text in own[1]:
            note(text)


def say_budget(budget: Budget, runs: Sequence[RunStatus], now: float, where: str = "") -> None:
    share, text = budget_words(budget, runs, now)
    end = (": used up, new runs are held back" if budget.hold else ": used up") if share >= 1 else ""
    say(f"{where}{text}{end}")


def costs_at(place: NamedEngine, period: Period, by: str, *, with_use: bool) -> list[CostRow]:
    from longboat.multicluster.spending import pool_costs, run_costs

    costs = run_costs(place, period, with_use=with_use)
    if by == "pool":
        pools = pool_costs(place, period)
        return all_pools(pools, [row for _, row in costs], place.name) if pools else []
    return grouped((name, row) for run, row in costs for name in names_of(run, by))


def show_costs(rows: Sequence[CostRow], by: str, output: str, *, is_several: bool) -> int:
    from longboat.sdk.places import currency

    unit = currency()
    if output == "csv":
        fields = ("name", "on", "runs", *HOURS, "cost")
        lines = [record_of(row, rows, by) for row in rows]
        write_csv([(*fields, "currency"), *((*(line[field] for field in fields), unit) for line in lines)])
        return 0
    if not rows and output == "table":
        say("no run had GPUs in this time" if by != "pool" else "no machine with GPUs")
        return 0
    shown = list(rows)
    if by in ("run", "user") and len(rows) > 1 and output == "table":
        shown.append(total(rows, name="(all)"))
    show(
        shown,
        output,
        record=lambda row: {**record_of(row, rows, by), "currency": unit},
        tables=lambda wide: print_costs(shown, by, unit, is_several=is_several),
    )
    return 0


def record_of(row: CostRow, rows: Sequence[CostRow], by: str) -> dict[str, Any]:
    """The fields of a row; of one pool among several, what runs did in it is not known, which is not 0."""
    is_part = by == "pool" and row.name != "(all)" and sum(each.on == row.on for each in rows) > 2
    return {**plain(row), **(dict.fromkeys(("runs", "asked", "held")) if is_part else {})}


def print_costs(rows: Sequence[CostRow], by: str, currency: str, *, is_several: bool) -> None:
    hours = [name for name in HOURS if by == "pool" or name != "paid"]
    place = ("ON",) if is_several else ()
    head = (by.upper(), *place, "RUNS", *(name.upper() for name in hours), "COST")
    lines = [(row, record_of(row, rows, by)) for row in rows]
    print_table(
        head,
        [
            (
                row.name,
                *((row.on,) if is_several else ()),
                line["runs"],
                *(_hours(line[name]) for name in hours),
                cost_words(row.cost, currency),
            )
            for row, line in lines
        ],
    )


def _hours(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def cost_words(cost: float | None, currency: str) -> str | None:
    return None if cost is None else f"{cost:,.2f} {currency}"
