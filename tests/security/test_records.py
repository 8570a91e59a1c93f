"""Times that somebody writes into a record give its run no more than the job asked for."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes.creation import start_of
from longboat.engines.kubernetes.records import State
from tests.engines.kubernetes.manifest_samples import job, record

NOW = 1_800_000_000.0
ASKED_S = 600.0


@pytest.mark.parametrize("started", [None, -1e15, 0.0, NOW - 1e6, NOW, NOW + 5.0, NOW + 1e6, 9.9e15])
def test_a_forged_start_gives_no_more_time(started: float | None) -> None:
    state = State(phase="recovering", attempt=1, started=started)
    start = start_of(record(job(timeout_s=ASKED_S)), state, code=None, now=NOW)
    assert start.timeout_s is not None and 0 < start.timeout_s <= ASKED_S
