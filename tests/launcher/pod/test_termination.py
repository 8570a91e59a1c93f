"""The termination message: always JSON, never more than 4096 bytes, cut in the order that is promised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.engines.kubernetes.observe.termination import read_going, read_termination
from longboat.launcher.pod.finalize import latest_metrics
from longboat.launcher.pod.termination import LIMIT, compose, compose_begun, write
from longboat.launcher.ranks.ranks import Rank


def report(**keys: Any) -> dict[str, Any]:
    return {
        "rank": 3,
        "role": "worker",
        "node": "worker-1",
        "pid": 7,
        "exit_code": 1,
        "signal": None,
        "started": 1.5,
        "ended": 2.5,
        "ended_ns": 99,
        "ended_by": None,
        "cause": "exception",
        "message": "ValueError: bad",
        "traceback": "Traceback (most recent call last):\n  File x\nValueError: bad",
        "stacks": "never sent",
        "tail": ["a", "b"],
        "memory_peak": 5,
        "memory_limit": None,
        "step": 12,
        **keys,
    }


def facts(**keys: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "node": "worker-1",
        "attempt": 0,
        "exit_code": 1,
        "cause": "exception",
        "message": "ValueError: bad",
        "ended": 3.5,
        "ended_by": "failure",
        "started": 1.5,
        "ranks": [[3, 1, None, 12], [4, 143, "failure", None]],
        "first": report(),
        "resumed_from": None,
        "checkpoint": "/longboat/storage/step-10",
        "gang": None,
    }
    return {**found, **keys}


def read(data: bytes) -> Any:
    assert len(data) <= LIMIT
    return json.loads(data)


def test_metrics_go_before_much_of_a_traceback_does() -> None:
    metrics = {"loss": 0.25}
    assert read(compose(facts(metrics=metrics)))["metrics"] == metrics
    long = read(compose(facts(metrics=metrics, first=report(traceback="line of code\n" * 150, tail=["x" * 300] * 50))))
    assert "metrics" in long and "line of code" in long["first"]["traceback"]
    longer = read(compose(facts(metrics=metrics, first=report(traceback="line of code\n" * 400))))
    assert "metrics" not in longer and "line of code" in longer["first"]["traceback"]


def test_only_numbers_that_can_be_shown_are_told() -> None:
    ranks = [Rank.__new__(Rank) for _ in range(3)]
    told: list[tuple[int | None, dict[str, float]]] = [
        (None, {}),
        (4, {"a": 1e300, "loss": 0.5, "n" * 99: 1.0}),
        (4, {}),
    ]
    for rank, each, (step, metrics) in zip(range(3), ranks, told, strict=True):
        each.rank, each.step, each.metrics = rank, step, metrics
    assert latest_metrics(ranks) == {"loss": 0.5, "n" * 64: 1.0}
    assert latest_metrics([]) == {}


def test_what_fits_is_whole() -> None:
    sentence = {"exit_code": 1, "cause": "exception", "message": "x", "node": "worker-1", "first": report()}
    found = read(compose(facts(gang=sentence)))
    assert found["v"] == 1 and found["ranks"] == [[3, 1, None, 12], [4, 143, "failure", None]]
    assert found["first"]["tail"] == ["a", "b"] and "Traceback" in found["first"]["traceback"]
    assert "stacks" not in found["first"] and "stacks" not in found["gang"]["first"]


def test_how_many_lines_there_are_is_told_of_all_streams_or_of_none() -> None:
    assert read(compose(facts(lines={"0.out": 3})))["lines"] == {"0.out": 3}
    assert read(compose(facts(lines={})))["lines"] == {}, "that there is no line is worth saying"
    assert "lines" not in read(compose(facts(lines=None)))
    many = {f"{rank}.out": rank for rank in range(1000)}
    assert "lines" not in read(compose(facts(lines=many)))
    told = read_termination(compose(facts(lines={"0.out": 3})).decode())
    assert told is not None and told.lines == {"0.out": 3}
    silent = read_termination(compose(facts()).decode())
    assert silent is not None and silent.lines is None


def test_the_engine_parses_the_launchers_termination_message() -> None:
    sentence = {"exit_code": 1, "cause": "exception", "message": "x", "node": "worker-1", "first": report()}
    said = read_termination(compose(facts(gang={**sentence, "reason": "failure"})).decode())
    assert said is not None and said.first is not None and said.gang is not None and said.gang.first is not None
    assert (said.first.rank, said.gang.cause, said.gang.first.step) == (3, "exception", 12)
    assert [row.exit_code for row in said.ranks] == [1, 143]


def test_the_order_of_cuts() -> None:
    many = [[rank, 0, None, 5] for rank in range(40)]
    lines = [f"line {n} " + "x" * 150 for n in range(20)]
    found = read(compose(facts(first=report(tail=lines), ranks=many)))
    kept = found["first"]["tail"]
    assert 0 < len(kept) < 20 and kept[-1].startswith("line 19")
    assert "Traceback" in found["first"]["traceback"] and len(found["ranks"]) == 40

    trace = "Traceback (most recent call last):\n" + "\n".join(f"  frame {n}" for n in range(400)) + "\nValueError: bad"
    found = read(compose(facts(first=report(tail=lines, traceback=trace), ranks=many)))
    assert found["first"].get("tail", []) == [] and found["first"]["traceback"].endswith("ValueError: bad")
    assert found["first"]["traceback"].startswith("...\n") and len(found["ranks"]) == 40

    rows = [[rank, 1 if rank == 399 else 0, None, None] for rank in range(400)]
    found = read(compose(facts(first=report(tail=lines, traceback=trace), ranks=rows)))
    assert "traceback" not in found["first"] and found["ranks"][0] == [399, 1, None, None]
    assert found["first"]["message"] == "ValueError: bad"

    found = read(compose(facts(first=report(message="m" * 9000), message="é" * 9000, ranks=rows)))
    assert found["exit_code"] == 1 and found["cause"] == "exception" and found["first"]["rank"] == 3


text = st.text(max_size=6000)


@settings(max_examples=60, deadline=None)
@given(text, text, st.lists(text, max_size=25), st.integers(0, 600), st.booleans())
def test_whatever_is_said_it_is_short_and_valid(
    message: str, traceback: str, tail: list[str], ranks: int, is_head: bool
) -> None:
    first = report(message=message, traceback=traceback, tail=tail, node="n" * 60)
    gang = {"exit_code": 1, "cause": "exit", "message": message, "node": "", "first": first, "tail": tail}
    rows = [[rank, 1, "failure", 10**9] for rank in range(ranks)]
    given_facts = facts(message=message, first=first, ranks=rows, tail=tail, gang=gang if is_head else None)
    found = read(compose(given_facts))
    assert found["exit_code"] == 1 and found["node"] == "worker-1"


def test_something_absurd_still_gives_a_message() -> None:
    found = read(compose(facts(checkpoint="c" * 9000, resumed_from="r" * 9000)))
    assert (found["exit_code"], found["cause"], found["attempt"]) == (1, "exception", 0)


def earlier(count: int, message: str, nodes: int) -> list[dict[str, Any]]:
    """Attempts before this one in the same pods, as launchers hand them on."""
    spares = {f"{'w' * 30}-{number}": f"{'w' * 30}-{number + 900}" for number in range(nodes)}
    fields = {"exit_code": 1, "cause": "exception", "node": "worker-1", "rank": 1, "signal": None, "step": 5}
    times = {"began": 1.5, "running": 2.5, "ended": 3.5, "resumed_from": "/longboat/storage/step-10"}
    ends = {**fields, **times, "message": message[:200], "replaced": [*spares][:8], "spares": spares}
    return [{**ends, "attempt": number} for number in range(count)]


@pytest.mark.parametrize("nodes", [0, 8, 64])
@pytest.mark.parametrize(
    ("message", "least"),
    [("RuntimeError: bad", 5), ("ОшибкаДанных: не удалось прочитать файл " * 5, 3), ("🔥" * 200, 1)],
    ids=["English", "Russian", "flames"],
)
def test_what_was_before_never_takes_the_place_of_the_verdict(message: str, least: int, nodes: int) -> None:
    gang = {"exit_code": 3, "cause": "exception", "message": message, "node": "worker-1", "first": report()}
    before = earlier(5, message, nodes)
    said = read_termination(compose(facts(message=message, gang=gang, attempt=5, began=1.5, restarts=before)).decode())
    assert said is not None and said.gang is not None and said.gang.first is not None
    assert (said.gang.exit_code, said.gang.message[:5], said.attempt) == (3, message[:5], 5)
    assert [end.attempt for end in said.restarts] == list(range(5))[5 - len(said.restarts) :]
    assert nodes or len(said.restarts) >= least


@pytest.mark.parametrize("nodes", [0, 8, 64])
@pytest.mark.parametrize("message", ["RuntimeError: bad", "🔥" * 200], ids=["English", "flames"])
def test_who_is_killed_in_a_later_attempt_has_left_which(message: str, nodes: int) -> None:
    """The kubelet keeps the last 4096 bytes: of a longer message nothing can be read."""
    begun = {"node": "worker-0", "attempt": 5, "began": 1.5, "restarts": earlier(5, message, nodes)}
    text = compose_begun(begun)
    going = read_going(text.decode())
    assert len(text) <= LIMIT and going is not None and going.attempt == 5
    assert nodes or [end.attempt for end in going.restarts] == [2, 3, 4]


def test_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 9000)
    before = path.stat().st_ino
    write(str(path), b"{}")
    assert path.read_bytes() == b"{}" and path.stat().st_ino == before
    write("/proc/nowhere/log", b"{}")  # nothing to be done about it
