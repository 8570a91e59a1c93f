"""Every table: objects in, plan out. The tables are in `tables/`, each named after the behaviour."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.autoscaler.decide.decide import decide
from tests.autoscaler.tables import NOW, check, load, make, plan_of

TABLES = load()


@pytest.mark.parametrize("table", [table for _, table in TABLES], ids=[name for name, _ in TABLES])
def test_table(table: dict[str, Any], tmp_path: Path) -> None:
    check(plan_of(table, tmp_path), table["want"])


@pytest.mark.parametrize("table", [table for _, table in TABLES], ids=[name for name, _ in TABLES])
def test_permuted_input_gives_the_same_plan(table: dict[str, Any], tmp_path: Path) -> None:
    snapshot, settings = make(table, tmp_path)
    mixed = random.Random(1)
    for _ in range(2):
        fields = {}
        for name in ("nodes", "pods", "gangs", "daemons", "pools", "orders", "failures", "memory", "budgets"):
            values = list(getattr(snapshot, name))
            mixed.shuffle(values)
            fields[name] = tuple(values)
        assert decide(msgspec.structs.replace(snapshot, **fields), settings, NOW) == decide(snapshot, settings, NOW)


def test_there_are_at_least_150_tables_with_a_name_each() -> None:
    assert len(TABLES) >= 150
    assert len({name for name, _ in TABLES}) == len(TABLES)
