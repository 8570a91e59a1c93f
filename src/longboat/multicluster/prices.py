"""Prices of GPU-hours by machine type, out of the tables of the clouds. Pure but for reading the tables that ship."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from longboat.clouds.machine_types import CloudMachine, shipped_table

CLOUDS = ("aws", "azure", "gcp")


@functools.cache
def gpu_machines() -> tuple[tuple[str, CloudMachine], ...]:
    """(cloud, machine type) of all tables, those with GPUs, the cheapest GPU first."""
    machines = [
        (cloud, machine) for cloud in CLOUDS for machine in shipped_table(cloud).machines.values() if machine.gpus
    ]
    return tuple(sorted(machines, key=lambda pair: (pair[1].price / pair[1].gpus, pair[0], pair[1].type)))


def notes() -> list[str]:
    """Where and when the prices were true."""
    return [shipped_table(cloud).note for cloud in CLOUDS]


def gpu_hour_of(machine_types: Iterable[str]) -> float | None:
    """The cheapest GPU for an hour among these machine types; None: none of them is in a table."""
    types = set(machine_types)
    return next((machine.price / machine.gpus for _, machine in gpu_machines() if machine.type in types), None)
