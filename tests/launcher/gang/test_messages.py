"""Messages between launchers: what is in order passes unchanged, everything else is a ValueError and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from longboat.launcher.gang.messages import count_of, from_leader, from_node
from longboat.launcher.node.jsonfiles import dumps, loads

REPORT = {
    "rank": 0,
    "role": "worker",
    "node": "worker-0",
    "pid": 12,
    "exit_code": 1,
    "signal": None,
    "started": 1.5,
    "ended": 2.5,
    "ended_ns": 10**12,
    "ended_by": None,
    "memory_peak": None,
    "memory_limit": 1 << 40,
    "step": 3,
    "stacks": "",
    "tail": ["one", "two"],
    "cause": "exit",
    "message": "exit code 1",
    "traceback": "",
}
OUTCOME = {"exit_code": 1, "cause": "exit", "message": "m", "ended_by": None, "tail": []}
WORDS: list[dict[str, Any]] = [
    {"is": "ready"},
    {"is": "evicted"},
    {"is": "dump"},
    {"is": "save"},
    {"is": "report", "report": REPORT, "age_s": 0.5},
    {"is": "stalled", "rank": 3, "silent_s": 60.0},
    {"is": "ended", "outcome": OUTCOME},
    {"is": "ended", "outcome": OUTCOME, "newest": 12},
    {"is": "stop", "grace_s": None},
    {"is": "stop", "grace_s": 3},
]
ORDERS: list[dict[str, Any]] = [
    {"do": "go", "resume_from": None},
    {"do": "go", "resume_from": "/c/step-1"},
    {"do": "end", "reason": "stop", "grace_s": 0.5},
    {"do": "end", "reason": "success", "grace_s": 30.0, "newest": 12},
    {"do": "dump"},
    {"do": "save"},
    {"do": "restart", "attempt": 1, "delay_s": 0.0, "ended": OUTCOME},
    {"do": "restart", "attempt": 1, "delay_s": 0.0, "ended": OUTCOME, "replaced": ["worker-1"]},
    {"do": "restart", "attempt": 1, "delay_s": 0.0, "ended": OUTCOME, "replaced": ["worker-1"]}
    | {"spares": {"worker-1": "worker-4"}, "places": {"worker-4": "worker-1", "worker-1": "worker-4"}},
]


def test_what_launchers_say_passes() -> None:
    for word in WORDS:
        assert from_node(word) == word
    for order in ORDERS:
        assert from_leader(order) == order


@pytest.mark.parametrize("infinite", ["1e999", "-1e999", "NaN", "Infinity"])
def test_times_that_no_timer_can_hold(infinite: str) -> None:
    for text in ('{"is": "stop", "grace_s": X}', '{"is": "stalled", "rank": 0, "silent_s": X}'):
        with pytest.raises(ValueError):
            from_node(loads(text.replace("X", infinite)))
    with pytest.raises(ValueError):
        from_leader(loads('{"do": "end", "reason": "stop", "grace_s": X}'.replace("X", infinite)))


@pytest.mark.parametrize("value", [None, True, -1, 1.0, "1", [1], 1 << 63])
def test_counts(value: object) -> None:
    with pytest.raises(ValueError):
        count_of(value)


def test_nesting_that_could_not_be_written_again() -> None:
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        from_node({"is": "report", "report": {**REPORT, "extra": deep}, "age_s": 0})


STRANGE: list[Any] = [None, True, -1, 10**30, 1e300, "text", "\ud800", [], [[]], {}, {"a": {}}, [None], 1.5]


def mutated(rng: random.Random, value: Any) -> Any:
    """The value with something in it, or all of it, replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        changed = dict(value)
        if rng.random() < 0.2:
            del changed[key]
        else:
            changed[key] = mutated(rng, value[key])
        return changed
    return rng.choice(STRANGE)


def test_whatever_is_changed_in_a_message_it_passes_or_is_a_value_error() -> None:
    """What passes can be written again, and the coordinator can judge by it."""
    from longboat.launcher.gang.coordinator import Coordinator

    rng = random.Random(11)
    for _ in range(4000):
        message = mutated(rng, rng.choice(WORDS))
        try:
            passed = from_node(message)
        except ValueError:
            continue
        dumps(passed)
        court = Coordinator(["n-0", "n-1"], ["n-0", "n-1"], 1.0)
        if passed["is"] == "report":
            court.report("n-1", passed["report"], 0.0)
        elif passed["is"] == "stalled":
            court.stalled(passed["rank"], passed["silent_s"], 0.0)
        elif passed["is"] == "ended":
            court.ended("n-1", {**passed["outcome"], "arrival": 0.0}, 0.0)
        dumps(court.verdict())
