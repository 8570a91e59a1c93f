"""The tables of machine types: those that ship, and a file of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clouds.machine_types import BadTable, load_table, parse_table, shipped_table

HEAD = "type,cpus,memory_gib,gpus,gpu,gpu_memory_gib,price\n"


def test_the_table_that_ships_is_dated_and_plausible() -> None:
    table = shipped_table("aws")
    assert "2025-06" in table.note
    assert table.machines["p5.48xlarge"].text == "8 x H100 80 GiB, 192 CPUs, 2048 GiB"
    for machine in table.machines.values():
        assert (machine.gpus > 0) == bool(machine.gpu) == (machine.gpu_memory_gib > 0)
        assert 0.01 < machine.price < 200


def test_a_file_replaces_prices(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(f"{HEAD}m5.large,2,8,0,,0,0.05\n")
    table = load_table("aws", str(tmp_path / "own.csv"))
    assert table.machines["m5.large"].price == 0.05
    assert "g5.xlarge" in table.machines
    assert table.note.endswith("prices of 1 types from own.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "line 1: expected the columns"),
        (f"{HEAD}a1.x,2\n", "line 2: found 2 values"),
        (f"{HEAD}a1.x,two,8,0,,0,1\n", "line 2: a1.x,two"),
        (f"# x\n{HEAD}a1.x,2,8,0,,0,nan\n", "line 3: a1.x: a number is out of range"),
        (f"{HEAD}A 1,2,8,0,,0,1\n", "not a machine type"),
    ],
)
def test_bad_tables_name_the_line(text: str, message: str) -> None:
    with pytest.raises(BadTable, match=message):
        parse_table(text)
