"""`longboat logs` through the real engine."""

from __future__ import annotations

import json
import re

import pytest

TWO_RANKS = """
for i in 1 2 3; do echo "line $i"; done; echo "error of $RANK" >&2
touch "$RANK.done"
until [ -e 0.done ] && [ -e 1.done ]; do sleep 0.02; done  # the first that fails ends the other
exit 6
"""


@pytest.fixture
def finished(longboat):
    longboat("run", "-q", "-n", "pair", "--procs", "2", "--", TWO_RANKS, code=6)
    return longboat


def test_streams_are_kept_apart_and_prefixed(finished) -> None:
    done = finished("logs", "pair")
    assert "worker-0/0 | line 1\n" in done.out
    assert set(done.err.splitlines()) <= {"worker-0/0 | error of 0", "worker-0/1 | error of 1"}
    assert done.err


def test_one_rank_has_no_prefix(longboat) -> None:
    longboat("run", "-q", "--procs", "2", "--", "sh", "-c", "echo $RANK; echo last")
    assert longboat("logs", "--rank", "1").out == "1\nlast\n"
    assert longboat("logs", "--rank", "1", "--tail", "1").out == "last\n"
    both = longboat("logs", "--rank", "0", "--rank", "1").out
    assert sorted(both.splitlines()) == [
        "worker-0/0 | 0", "worker-0/0 | last", "worker-0/1 | 1", "worker-0/1 | last",
    ]  # fmt: skip


def test_following_returns_the_exit_code(finished) -> None:
    assert finished("logs", "-f", code=6).out == finished("logs").out


def test_timestamps(finished) -> None:
    out = finished("logs", "pair", "--timestamps").out
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z worker-0/[01] \| line \d"
    assert all(re.fullmatch(pattern, line) for line in out.splitlines())


def test_since(finished) -> None:
    assert finished("logs", "--since", "1h").out == finished("logs").out
    assert finished("logs", "--since", "2199-01-01").out == ""
    assert "not a duration" in finished("logs", "--since", "then", code=201).err


def test_json_lines(finished) -> None:
    lines = [json.loads(line) for line in finished("logs", "-o", "json", "--rank", "0").out.splitlines()]
    assert [line["text"] for line in lines if line["stream"] == "out"] == ["line 1", "line 2", "line 3"]
    assert {"time", "role", "node", "rank", "stream", "attempt", "text"} == set(lines[0])


def test_roles(longboat) -> None:
    (longboat.folder / "job.yaml").write_text(
        "name: roles\nroles:\n  ps: {run: echo from ps; sleep 60}\n  worker: {run: echo from worker; sleep 0.3}\n"
    )
    longboat("run", "-q", "job.yaml")
    assert longboat("logs", "--role", "ps").out == "ps-0/0 | from ps\n"


def test_attempts(longboat) -> None:
    retries = "retries={count: 1, backoff: 0.1s}"
    longboat("run", "-q", "--set", retries, "--", "sh", "-c", "echo $LONGBOAT_ATTEMPT; exit 1", code=1)
    assert longboat("logs").out == "0\n1\n"
    assert longboat("logs", "--attempt", "2").out == "1\n"
    assert "hint: its attempts are 1 to 2" in longboat("logs", "--attempt", "3", code=202).err


def test_what_the_run_does_not_have(finished) -> None:
    assert "hint: its ranks are 0 to 1" in finished("logs", "--rank", "7", code=202).err
    assert "hint: it has one attempt" in finished("logs", "--attempt", "2", code=202).err
    assert "hint: its roles: worker" in finished("logs", "--role", "ps", code=202).err
    assert "hint: did you mean pair?" in finished("logs", "piar", code=202).err
