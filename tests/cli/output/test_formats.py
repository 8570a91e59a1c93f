"""Values as data: attempts are counted from 1, as in every table and sentence."""

from __future__ import annotations

import pytest

from longboat.cli.output.formats import plain, write_csv
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


def test_cells_of_csv_are_no_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    cells = ("=cmd()", "+a", "-rm", "@x", "\tx", "-0.5", "-", "", "a=b", -1, None)
    write_csv([cells])
    assert capsys.readouterr().out == "'=cmd(),'+a,'-rm,'@x,'\tx,-0.5,-,,a=b,-1,\n"


def test_cells_of_csv_drive_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv([("a\x1b[2Jb", "\x9b", "two\nlines")])
    assert capsys.readouterr().out == 'a\\x1b[2Jb,\\x9b,"two\nlines"\n'
