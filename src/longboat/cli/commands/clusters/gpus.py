"""`longboat gpus`: the GPUs of this machine and of all clusters, and the machine types of the clouds."""

from __future__ import annotations

from collections.abc import Sequence

import click

from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import chosen_places, engine_options
from longboat.cli.output.formats import plain, show
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import note, say
from longboat.core.resources import show_quantity

HEAD = ("ON", "GPU", "MEMORY", "FREE", "TOTAL", "ON ONE NODE", "NODES", "GPU-HOUR")
MACHINE_HEAD = ("CLOUD", "TYPE", "GPUS", "GPU", "MEMORY", "CPUS", "HOUR", "GPU-HOUR")


@click.command("gpus", short_help="List GPUs of all clusters: what is free, what it costs.")
@click.argument("kind", required=False, metavar="[GPU]")
@click.option("--machines", is_flag=True, help="The machine types with GPUs that AWS, Azure and Google rent out.")
@output_option("table", "json", "yaml", "csv")
@engine_options
def command(kind: str | None, machines: bool, output: str) -> int:
    """List the GPUs of this machine and of every cluster of the kubeconfig, or of those of --on.

    GPU selects by name: H100, t4. ON ONE NODE is how many are free together there. Prices come from the settings
    (`gpu_hour`), else from the machine types of the nodes; `own` machines cost nothing by the hour.
    """
    return show_machines(kind, output) if machines else show_stocks(kind, output)


def show_stocks(kind: str | None, output: str) -> int:
    from longboat.multicluster.ask import answers_of
    from longboat.multicluster.inventory import stocks_at
    from longboat.sdk.places import currency

    places = chosen_places()
    answers = answers_of(places, stocks_at, lambda name, error: note(f"{name} is not listed: {error.message}"))
    stocks = [stock for _, answer in answers for stock in answer if is_named(kind, stock.gpu)]
    rows = [
        (
            stock.on, stock.gpu, _size(stock.memory), stock.free, stock.total, stock.largest, stock.nodes,
            _price(stock.price, currency()),
        )
        for stock in stocks
    ]  # fmt: skip
    if output == "csv":
        return print_csv(HEAD, rows)
    if not stocks and output == "table":
        say(f"no GPUs{f' called {kind}' if kind else ''} in: {', '.join(place.name for place, _ in answers)}")
        return 0
    show(stocks, output, record=plain, tables=lambda wide: print_table(HEAD, rows))
    return 0


def show_machines(kind: str | None, output: str) -> int:
    from longboat.multicluster.prices import gpu_machines, notes

    machines = [pair for pair in gpu_machines() if is_named(kind, pair[1].gpu)]
    if not machines and output == "table":
        say(f"no machine type of the clouds' tables has GPUs called {kind}")
        return 0
    rows = [
        (
            cloud, machine.type, machine.gpus, machine.gpu, f"{machine.gpu_memory_gib:g} GiB", machine.cpus,
            f"{machine.price:.2f}", f"{machine.price / machine.gpus:.2f}",
        )
        for cloud, machine in machines
    ]  # fmt: skip
    if output == "csv":
        return print_csv(MACHINE_HEAD, rows)
    show(
        machines,
        output,
        record=lambda pair: {"cloud": pair[0], **plain(pair[1])},
        tables=lambda wide: print_table(MACHINE_HEAD, rows),
    )
    for text in notes():
        say(text)
    return 0


def print_csv(head: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    from longboat.cli.output.formats import write_csv

    write_csv([tuple(name.lower().replace(" ", "_").replace("-", "_") for name in head), *rows])
    return 0


def is_named(kind: str | None, gpu: str) -> bool:
    """`h100` selects `NVIDIA-H100-80GB-HBM3`."""
    bare = "".join(char for char in (kind or "").lower() if char.isalnum())
    return bare in "".join(char for char in gpu.lower() if char.isalnum())


def _size(memory: int | None) -> str | None:
    return None if memory is None else show_quantity(memory)


def _price(price: float | None, currency: str) -> str | None:
    return None if price is None else f"{price:.2f} {currency}" if price else "own"
