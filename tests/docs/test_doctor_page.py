"""docs/doctor.md lists exactly the checks that there are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from longboat.doctor.checks.hosts import PROBLEMS

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "doctor_page.py"


def test_the_tables_are_those_of_the_catalog() -> None:
    spec = importlib.util.spec_from_file_location("doctor_page", SCRIPT)
    assert spec and spec.loader
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.written(text), "type: python scripts/doctor_page.py"
    assert sum(text.count(f"| {check.name} |") for checks in page.TABLES.values() for check in checks) >= 40


def test_what_is_checked_before_anything_is_touched_is_on_the_page_of_clusters() -> None:
    text = (SCRIPT.parents[1] / "docs" / "clusters.md").read_text(encoding="utf-8")
    table = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert [kind for kind in PROBLEMS if not any(f"`{kind}`" in cell for cell in table)] == []
