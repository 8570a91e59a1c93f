"""Writes the tables of docs/doctor.md from the catalog of checks. Usage: python scripts/doctor_page.py"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from longboat.doctor import catalog
from longboat.doctor.findings import Check

PAGE = Path(__file__).resolve().parent.parent / "docs" / "doctor.md"
TABLES = {"machine": catalog.MACHINE_CHECKS, "cluster": catalog.CLUSTER_CHECKS, "hosts": catalog.HOST_CHECKS}


def table(checks: Iterable[Check]) -> str:
    rows = [f"| {check.name} | {check.layer} | {check.title}{mark(check)} |\n" for check in checks]
    return "| check | layer | what is right |\n|---|---|---|\n" + "".join(rows)


def mark(check: Check) -> str:
    pods = " (pods)" if check in catalog.POD_CHECKS else ""
    return f"{pods}; `--fix`: {check.fix}" if check.fix else pods


def written(text: str) -> str:
    """The page with its tables made anew."""
    for name, checks in TABLES.items():
        start, end = f"<!-- {name}: python scripts/doctor_page.py -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(start)
        text = head + start + table(checks) + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
