"""Machine types of a cloud: processors, memory, GPUs, price; from a dated table that ships and a file that adds to it.

The table is a CSV file whose first comment says where and when its prices were true. Pure but for reading it.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from longboat.core.jobs import Value

_COLUMNS = ("type", "cpus", "memory_gib", "gpus", "gpu", "gpu_memory_gib", "price")
_LARGEST_FILE = 1 << 20  # the table that ships has some KiB


class CloudMachine(Value, frozen=True):
    type: str
    cpus: int
    memory_gib: float
    gpus: int = 0
    gpu: str = ""
    gpu_memory_gib: float = 0
    price: float = 0.0
    """USD per hour, on demand."""

    @property
    def text(self) -> str:
        """`8 x H100 80 GiB, 192 CPUs, 2048 GiB`."""
        gpus = f"{self.gpus} x {self.gpu} {self.gpu_memory_gib:g} GiB, " if self.gpus else ""
        return f"{gpus}{self.cpus} CPUs, {self.memory_gib:g} GiB"


class MachineTable(Value, frozen=True):
    machines: Mapping[str, CloudMachine]
    note: str
    """Where and when the prices were true."""


class BadTable(Exception):
    """A table that cannot be read: the message has the line."""


def parse_table(text: str) -> MachineTable:
    """Raises BadTable with the line of the first mistake."""
    lines = text.splitlines()
    note = next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")
    head: list[str] | None = None
    machines: dict[str, CloudMachine] = {}
    for number, cells in _rows(lines):
        if head is None:
            if tuple(cells) != _COLUMNS:
                raise BadTable(f"line {number}: expected the columns {','.join(_COLUMNS)}")
            head = cells
            continue
        machine = _machine(cells, number)
        machines[machine.type] = machine
    return MachineTable(machines=machines, note=note)


def _rows(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            yield number, [cell.strip() for cell in next(csv.reader([line]))]


def _machine(cells: list[str], number: int) -> CloudMachine:
    if len(cells) != len(_COLUMNS):
        raise BadTable(f"line {number}: found {len(cells)} values, expected {len(_COLUMNS)}")
    name, cpus, memory, gpus, gpu, gpu_memory, price = cells
    try:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", name):
            raise ValueError
        machine = CloudMachine(
            type=name, cpus=int(cpus), memory_gib=float(memory), gpus=int(gpus), gpu=gpu,
            gpu_memory_gib=float(gpu_memory), price=float(price),
        )  # fmt: skip
    except ValueError:
        raise BadTable(f"line {number}: {','.join(cells)[:80]}: not a machine type and its numbers") from None
    if (
        machine.cpus < 1
        or not 0 < machine.memory_gib < 1e6
        or not 0 <= machine.gpus <= 64
        or not 0 <= machine.price < 1e5
    ):
        raise BadTable(f"line {number}: {name}: a number is out of range")
    return machine


@functools.cache
def shipped_table(cloud: str) -> MachineTable:
    return parse_table((Path(__file__).parent / cloud / "machines.csv").read_text(encoding="utf-8"))


def load_table(cloud: str, file: str | None = None) -> MachineTable:
    """The table that ships, with what a file of the user's adds or replaces. Raises BadTable."""
    shipped = shipped_table(cloud)
    if file is None:
        return shipped
    try:
        with open(file, encoding="utf-8") as stream:
            text = stream.read(_LARGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadTable(f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    if len(text) > _LARGEST_FILE:
        raise BadTable("larger than 1 MiB")
    added = parse_table(text)
    own = added.note or f"prices of {len(added.machines)} types from {Path(file).name}"
    return MachineTable(machines={**shipped.machines, **added.machines}, note=f"{shipped.note} {own}")
