from __future__ import annotations

import pytest

from longboat.cli.output.tables import print_fields, table
from longboat.cli.output.terminal import clean, note


def test_columns_line_up_and_nothing_is_a_dash() -> None:
    lines = table(("NAME", "N", "INFO"), [("a", 1, None), ("long-name", 200, "x y")])
    assert lines == ["NAME       N    INFO", "a          1    -", "long-name  200  x y"]


def test_lines_are_cut_only_to_a_width() -> None:
    assert table(("A",), [("x" * 20,)], width=10)[1] == "xxxxxxx..."
    assert table(("A",), [("x" * 20,)])[1] == "x" * 20


def test_no_text_can_drive_the_terminal() -> None:
    assert clean("a\x1b[31mb\nc\x9b") == "a\\x1b[31mb c\\x9b"
    assert table(("A",), [("\x1b]0;x\x07",)])[1] == "\\x1b]0;x\\x07"
    assert table(("\x1b[2J",), [])[0] == "\\x1b[2J"  # a metric's name


def test_notes_cannot_drive_the_terminal_and_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    note("away: \x1b[2Jx\nhint: y")
    assert capsys.readouterr().err == "note: away: \\x1b[2Jx\nhint: y\n"


def test_fields_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("run", "a"), ("exit code", 0), ("step", None), ("reason", "")])
    assert capsys.readouterr().out == "run:       a\nexit code: 0\n"
