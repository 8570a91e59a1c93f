"""Budgets of this machine's settings, and whether they hold a run back. Reads; half a minute old at most."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from longboat.core.errors import LongboatError
from longboat.core.runs import RunStatus
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.home import Home
from longboat.engines.shared.run_summary import brief

if TYPE_CHECKING:
    from longboat.engines.lifecycle.budgets import Budget

FRESH_S = 30.0  # all runs of the home are read for it; budgets are hours


class BudgetHold:
    """Whether a run of this machine has to wait for a budget."""

    def __init__(self, home: Home, record: LocalRecord, *, is_new: bool) -> None:
        """`is_new`: no attempt of it has begun; a retry is never held back."""
        self._home, self._record = home, record
        self._is_asked = is_new and bool(record.job.gpus)
        self._asked, self._reason = -FRESH_S, ""

    def reason(self) -> str:
        """Why it waits; empty: no budget keeps it."""
        if self._is_asked and time.monotonic() - self._asked >= FRESH_S:
            from longboat.engines.lifecycle.budgets import held_back

            self._asked = time.monotonic()
            budgets = [budget for budget in set_budgets(self._home) if budget.hold]
            user, labels = self._record.user, self._record.job.labels
            runs = list(_runs(self._home)) if any(each.covers(user, labels) for each in budgets) else []
            self._reason = held_back(budgets, user, labels, runs, time.time())
        return self._reason


def set_budgets(home: Home) -> list[Budget]:
    """Those of config.yaml, which was checked when they were set; one that was damaged since holds nobody."""
    try:
        text = (home.root / "config.yaml").read_bytes()
    except OSError:
        return []
    if b"budgets" not in text:  # reading YAML takes time
        return []
    import yaml

    from longboat.engines.lifecycle.budgets import read_budgets

    try:
        return read_budgets((yaml.safe_load(text) or {}).get("budgets") or {})
    except (yaml.YAMLError, ValueError, AttributeError):
        return []


def _runs(home: Home) -> Iterator[RunStatus]:
    for name in home.run_names():
        files = RunFiles(home.runs / name)
        with contextlib.suppress(LongboatError):  # removed meanwhile, or damaged
            yield brief("local", files.record(), files.state())
