"""Values as data: attempts are counted from 1, as in every table and sentence."""

from __future__ import annotations

from longboat.cli.output.formats import plain
from longboat.core.runs import Attempt, LogLine, RunStatus


def test_attempts_are_counted_from_1() -> None:
    attempts = tuple(Attempt(number=number, started=0.0) for number in range(2))
    run = RunStatus(
        name="r", uid="u", job="r", phase="running", engine="local", created=0.0, nodes=1, gpus=0, attempt=1,
        attempts=attempts,
    )  # fmt: skip
    shown = plain(run)
    assert (shown["attempt"], [attempt["number"] for attempt in shown["attempts"]]) == (2, [1, 2])
    line = LogLine(role="worker", node="worker-0", rank=0, stream="out", time=0.0, attempt=0, data=b"x")
    assert plain(line)["attempt"] == 1
