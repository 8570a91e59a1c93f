"""How a line of a log is shown: who speaks."""

from __future__ import annotations

import io
import re

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


def line(data: bytes, rank: int = 0, stream: str = "out", attempt: int = 0) -> LogLine:
    return LogLine(role="worker", node="worker-0", rank=rank, stream=stream, time=0.0, attempt=attempt, data=data)


class Shown:
    """What a printer writes to stdout, with or without a terminal there."""

    def __init__(self, *, terminal: bool, **options: object) -> None:
        self.printer = LinePrinter(**options)  # type: ignore[arg-type]
        self.out = io.BytesIO()
        self.printer.streams = {"out": self.out, "err": self.out}
        self.printer.has_terminal = {"out": terminal, "err": terminal}

    def __call__(self, *lines: LogLine) -> bytes:
        for each in lines:
            self.printer(each)
        done, self.out = self.out.getvalue(), io.BytesIO()
        self.printer.streams = {"out": self.out, "err": self.out}
        return done


def test_one_ranks_output_is_shown_as_it_comes() -> None:
    shown = Shown(terminal=True, prefixes=False)
    assert shown(line(b"Epoch 1: ")) == b"Epoch 1: "
    assert shown(line(b"\r 10%"), line(b"\r 20%\n")) == b"\r 10%\r 20%\n"


def test_of_several_ranks_each_update_of_a_bar_is_a_line_where_nobody_looks() -> None:
    shown = Shown(terminal=False, prefixes=True)
    assert shown(line(b"\r 10%"), line(b"whole\n", rank=1)) == b"worker-0/1 | whole\n"
    assert shown(line(b"\r 20%"), line(b"\r 30%")) == b"worker-0/0 |  10%\nworker-0/0 |  20%\n"
    assert shown(line(b"\n"), line(b"a\r"), line(b"\n")) == b"worker-0/0 |  30%\nworker-0/0 | a\n"
    assert shown(line(b"\n"), line(b"  x\n")) == b"worker-0/0 | \nworker-0/0 |   x\n"
    assert shown(line(b"no newline")) == b""
    shown.printer.close()
    assert shown() == b"worker-0/0 | no newline\n"


def test_of_several_ranks_one_bar_has_the_bottom_line_of_a_terminal() -> None:
    shown = Shown(terminal=True, prefixes=True)
    erase = b"\r\033[K"
    assert shown(line(b"\r 10%")) == erase + b"worker-0/0 |  10%"
    assert shown(line(b"\r 11%", rank=1)) == b"", "bars that take turns cannot be read"
    assert shown(line(b"\r 20%")) == erase + b"worker-0/0 |  20%"
    assert shown(line(b"text\n", rank=2)) == erase + b"worker-0/2 | text\n"
    assert shown(line(b"\r 30%")) == erase + b"worker-0/0 |  30%"
    assert shown(line(b"\r100%\n")) == erase + b"worker-0/0 | 100%\n", "the last update stays"
    shown.printer.close()
    assert shown() == b"worker-0/1 |  11%\n"


def test_earlier_updates_of_a_bar_are_not_kept() -> None:
    shown = Shown(terminal=True, prefixes=True)
    for number in range(1000):
        shown(line(b"\r%3d" % number if number % 2 else b"%3d\r" % number))
    (kept,) = shown.printer.unfinished.values()
    assert kept == b"999"
    shown(line(b"\r"), line(b"\r"))
    assert shown(line(b"\n")) == b"\r\033[Kworker-0/0 | 999\n"


def test_a_line_that_never_ends_is_shown_in_parts() -> None:
    shown = Shown(terminal=True, prefixes=True)
    written = b"".join(shown(line(b"." * 1000)) for _ in range(200))
    assert sum(map(len, shown.printer.unfinished.values())) <= 1 << 16
    parts = [part.rpartition(b"| ")[2] for part in written.split(b"\n")[:-1]]
    shown.printer.close()
    assert sum(map(len, parts)) + shown().count(b".") == 200_000 and len(parts) == 3


def test_a_file_gets_long_lines_whole_and_endless_ones_in_parts() -> None:
    shown = Shown(terminal=False, prefixes=True)
    parts = [line(b"x" * 100_000) for _ in range(10)]
    assert shown(*parts, line(b"\n")) == b"worker-0/0 | " + b"x" * 1_000_000 + b"\n"
    endless = shown(*parts, *parts, *parts)
    assert endless.count(b"\n") == 2 and len(shown.printer.unfinished[("worker-0", 0, "out")]) <= 1 << 20


def test_where_the_next_attempt_begins_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Shown(terminal=False, prefixes=True, attempts=3)
    assert shown(line(b"half"), line(b"b\n", attempt=1)) == b"worker-0/0 | half\nworker-0/0 | b\n"
    assert capsys.readouterr().err == "longboat: attempt 2 of 3\n"


def test_what_was_looked_for_has_a_colour() -> None:
    shown = Shown(terminal=True, prefixes=False, highlight=[re.compile(b"l.ss"), re.compile(b"x*")])
    assert shown(line(b"a loss\n")) == b"a loss\n"
    shown.printer.colour = {"out": True, "err": True}
    assert shown(line(b"a loss\n")) == b"a \033[1;31mloss\033[0m\n"


def test_a_message_in_the_bottom_line_goes_when_something_is_written() -> None:
    shown = Shown(terminal=True, prefixes=False)
    assert shown.printer.draw("imports x: 1 GiB") and shown() == b"\r\033[Kimports x: 1 GiB"
    assert shown(line(b"Epoch 1: ")) == b"\r\033[KEpoch 1: "
    assert shown.printer.draw("imports x: 2 GiB") and shown() == b"", "not into the middle of a line"
    assert not Shown(terminal=False, prefixes=False).printer.draw("imports x")
