"""Staying with a run: what is said when its phase changes."""

from __future__ import annotations

from typing import cast

import pytest

from longboat.cli.attach import Watcher
from longboat.core.runs import Attempt, Failure, RunStatus
from longboat.engines.engine import Engine

LOST = Failure(cause="lost", exit_code=208, message="node n1 (worker-0) was lost")


def status(phase: str, attempt: int, reason: str = "") -> RunStatus:
    attempts = tuple(Attempt(number=n, started=1.0, failure=LOST if n < attempt else None) for n in range(attempt + 1))
    return RunStatus(
        name="r", uid="u", job="r", phase=phase, engine="kubernetes", created=0.0, nodes=1, gpus=0,
        attempt=attempt, retries=2, reason=reason, attempts=attempts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (status("running", 1), ["attempt 1 failed: lost: node n1 (worker-0) was lost", "is running, attempt 2 of 3"]),
        (status("recovering", 1, "its pods are being created"), ["attempt 1 failed: lost: node n1", "pods are being"]),
        (status("recovering", 1, "lost: node n1 (worker-0) was lost; retry 1 of 2"), ["is recovering: lost: node n1"]),
    ],
)
def test_why_there_is_another_attempt_is_always_said(
    seen: RunStatus, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when nobody looked between the failure and the next attempt; once."""
    watcher = Watcher(cast(Engine, None), seen, quiet=False)
    watcher.report(status("running", 0))
    watcher.report(seen)
    watcher.report(seen)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said) and all(words in line for words, line in zip(said, lines, strict=True)), lines
