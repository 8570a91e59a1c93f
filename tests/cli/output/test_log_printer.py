"""How a line of a log is shown: who speaks."""

from __future__ import annotations

import pytest

from longboat.cli.output.log_printer import LinePrinter
from longboat.core.runs import LogLine


@pytest.mark.parametrize(
    ("rank", "stream", "head"),
    [
        (3, "out", "worker-1/3 | "),
        (-1, "setup", "worker-1/setup | "),
        (-1, "out", "worker-1/setup | "),
        (-1, "err", "worker-1/launcher | "),
    ],
)
def test_a_line_of_no_rank_is_of_setup_or_of_the_launcher(rank: int, stream: str, head: str) -> None:
    printer = LinePrinter(prefixes=True, timestamps=False)
    line = LogLine(role="worker", node="worker-1", rank=rank, stream=stream, time=0.0, attempt=0, data=b"x\n")
    assert printer.head(line).decode() == head
