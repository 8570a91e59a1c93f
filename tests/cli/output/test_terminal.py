"""What changes when a person is looking: colour, questions. Through a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest


def on_terminal(longboat, *args: str, answers: str = "", after: str = "", **environment: str) -> tuple[int, str]:
    """Exit code and all that appeared on the terminal; the answers are typed once `after` has appeared."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "longboat", *args],
        cwd=longboat.folder,
        env={"TERM": "xterm", **longboat.environment, **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while True:
        if answers and after.encode() in shown:
            os.write(ours, answers.encode())
            answers = ""
        try:
            data = os.read(ours, 65536)
        except OSError:  # the last writer has gone
            break
        if not data:
            break
        shown += data
    os.close(ours)
    return process.wait(), shown.decode().replace("\r\n", "\n")


@pytest.fixture
def finished(longboat):
    longboat.environment.pop("NO_COLOR", None)
    longboat("run", "-q", "-n", "pair", "--procs", "2", "--", "sh", "-c", "echo hi; exit 3", code=3)
    return longboat


def test_colour_only_on_a_terminal(finished) -> None:
    assert "\x1b[31mfailed\x1b[0m" in on_terminal(finished, "ps")[1]
    assert "\x1b" not in on_terminal(finished, "ps", NO_COLOR="1")[1]
    assert "\x1b" not in on_terminal(finished, "ps", TERM="dumb")[1]
    assert "\x1b" not in finished("ps").out
    # The rank that fails first may end the other one before it has said anything.
    assert re.search(r"\x1b\[3\dmworker-0/[01] \|\x1b\[0m hi", on_terminal(finished, "logs")[1])
    assert on_terminal(finished, "stats")[1].startswith("\x1b[31merror:\x1b[0m no such command")


def test_wide_lines_are_cut_to_the_terminal(finished) -> None:
    _, shown = on_terminal(finished, "ps", "-o", "wide", NO_COLOR="1", COLUMNS="40")
    assert max(len(line) for line in shown.splitlines()) == 40


def test_removing_all_asks_first(finished) -> None:
    code, shown = on_terminal(finished, "rm", "--all", answers="n\n")
    assert (code, "Remove them? [y/N]" in shown, "nothing was changed" in shown) == (130, True, True)
    assert finished("ps", "-o", "name").out == "pair\n"
    assert on_terminal(finished, "rm", "--all", answers="y\n")[0] == 0
    assert finished("ps", "-o", "name").out == ""


def test_init_asks_a_few_questions(longboat) -> None:
    code, _ = on_terminal(longboat, "init", "train.py", answers="mine\n\n2\n0\n3\n1\nn\n")
    assert code == 0
    job = longboat("check", "job.yaml").out
    assert "name: mine\n" in job and "nodes: 2\n" in job and "procs: 3\n" in job


def test_a_secret_is_not_echoed(longboat) -> None:
    code, shown = on_terminal(longboat, "secret", "set", "TOKEN", answers="hidden\n", after="Value of TOKEN: ")
    assert code == 0
    assert "hidden" not in shown
    assert longboat("run", "-q", "--secret", "TOKEN", "--", "echo ${#TOKEN}").out == "6\n"


def test_names_of_runs_complete(finished) -> None:
    finished.environment |= {"_LONGBOAT_COMPLETE": "bash_complete", "COMP_WORDS": "longboat logs p", "COMP_CWORD": "2"}
    done = finished()
    del finished.environment["_LONGBOAT_COMPLETE"]
    assert done.out == "plain,pair\n"
