"""A check by its name, on facts that a test states."""

from __future__ import annotations

from typing import Any

from longboat.doctor.catalog import CLUSTER_CHECKS, MACHINE_CHECKS
from longboat.doctor.examination import judge
from longboat.doctor.facts import Fact, Seen
from longboat.doctor.findings import Finding, Judgement


def judged(name: str, values: dict[Fact[Any], Any], problems: dict[Fact[Any], Judgement] | None = None) -> Finding:
    """Of a cluster's check, where this machine has one of the name too."""
    check = next(check for check in (*CLUSTER_CHECKS, *MACHINE_CHECKS) if check.name == name)
    (finding,) = judge([check], Seen(values, problems))
    if finding.status in ("warning", "broken"):
        assert finding.hint, f"{name}: {finding.detail} comes without a hint"
    return finding


def status(name: str, values: dict[Fact[Any], Any]) -> str:
    return judged(name, values).status
