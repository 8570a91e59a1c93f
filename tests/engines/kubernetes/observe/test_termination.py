"""How pods end, as data: the launcher's own words, Kubernetes' where there are none, and anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.engines.kubernetes.observe.termination import (
    NodeEnd,
    RankEnd,
    container_of,
    outcome_of,
    outcome_of_pod,
    read_termination,
)

FIRST = {"rank": 1, "exit_code": 3, "cause": "exception", "message": "ValueError: x", "tail": ["a", "b"], "new": 1}
WHOLE = {
    "v": 1,
    "node": "worker-0",
    "attempt": 2,
    "exit_code": 3,
    "cause": "exception",
    "message": "ValueError: x",
    "started": 10.5,
    "ended": 20,
    "ended_by": None,
    "ranks": [[0, 143, "failure", 17], [1, 3, None, None]],
    "first": FIRST,
    "resumed_from": "/c/step-1",
    "checkpoint": "/c/step-2",
    "gang": {"exit_code": 3, "cause": "exception", "message": "m", "node": "worker-0", "first": FIRST},
}


def test_a_whole_message() -> None:
    found = read_termination(json.dumps(WHOLE))
    assert found is not None and found.first is not None and found.gang is not None and found.gang.first is not None
    assert (found.node, found.attempt, found.exit_code, found.cause) == ("worker-0", 2, 3, "exception")
    assert (found.started, found.ended, found.checkpoint) == (10.5, 20.0, "/c/step-2")
    assert found.ranks == (RankEnd(rank=0, exit_code=143, ended_by="failure", step=17), RankEnd(rank=1, exit_code=3))
    assert (found.first.tail, found.gang.first.rank) == (("a", "b"), 1)


@pytest.mark.parametrize(
    "text", ["", "killed", "[]", "1", "null", '"v"', "{}", '{"v": 1}', '{"v": "1", "exit_code": 0}', "{", "\udcff{}"]
)
def test_what_is_not_the_launchers(text: str) -> None:
    assert read_termination(text) is None


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"later": {"a": 1}}, {"exit_code": 3}),
        ({"first": "nonsense"}, {"first": None, "cause": "exception"}),
        ({"ranks": [[0, 1, None, None, "more"], "x", [], ["a"], [1]]}, {"cause": "exception"}),
        ({"ranks": None}, {"ranks": ()}),
        ({"started": "soon", "gang": 7}, {"started": None, "gang": None, "ended": 20.0}),
    ],
)
def test_messages_of_other_versions(changed: dict[str, Any], kept: dict[str, Any]) -> None:
    found = read_termination(json.dumps({**WHOLE, **changed}))
    assert found is not None
    assert {name: getattr(found, name) for name in kept} == kept


WILD = ["9" * 4000, "-" + "9" * 4000, "1e308", "-1e17", str(10**19)]


@pytest.mark.parametrize("number", WILD)
@pytest.mark.parametrize("place", ["exit_code", "ended", "ranks", "gang"])
def test_numbers_that_overflow_are_not_the_launchers(place: str, number: str) -> None:
    """A state with such a number cannot be written, and a list that shows it fails for all runs."""
    wild = {"exit_code": "X", "ended": "X", "ranks": [[0, "X"]], "gang": {"exit_code": "X"}}[place]
    assert read_termination(json.dumps({**WHOLE, place: wild}).replace('"X"', number)) is None


def test_rows_that_make_no_sense_are_left_out() -> None:
    found = read_termination(json.dumps({**WHOLE, "ranks": [[0, 1, None, None, "more"], "x", [], ["a"], [1]]}))
    assert found is not None and found.ranks == (RankEnd(rank=0, exit_code=1), RankEnd(rank=1))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*WHOLE, "x"]), inner),
    )
)
def test_any_json_is_read_without_an_exception(value: Any) -> None:
    for text in (json.dumps(value), json.dumps({**WHOLE, "first": value, "gang": value, "ranks": [value]})):
        found = read_termination(text)
        assert found is None or isinstance(found, NodeEnd)


def container(code: int = 1, reason: str = "Error", message: str = "", **more: Any) -> dict[str, Any]:
    times = {"startedAt": "2026-11-15T07:00:00Z", "finishedAt": "2026-11-15T07:01:00Z"}
    ended = {"exitCode": code, "reason": reason, "message": message, **times}
    return {"name": "main", "state": {"terminated": {**ended, **more}}}


def test_the_launchers_word_counts_more_than_the_containers() -> None:
    found = outcome_of(container(137, "OOMKilled", json.dumps(WHOLE)))
    assert found is not None and found.said is not None
    assert (found.exit_code, found.cause, found.reason) == (3, "exception", "OOMKilled")
    assert (found.ended or 0) - (found.started or 0) == 60


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (container(0, "Completed"), (0, None, "")),
        (container(137, "OOMKilled"), (137, "oom", "out of memory")),
        (
            container(128, "StartError", 'exec: "python3": executable file not found in $PATH'),
            (209, "image", "python3"),
        ),
        (container(128, "StartError", "mount failed"), (209, "image", "mount failed")),
        (container(137, "Error"), (208, "lost", "killed")),
        (container(137, "ContainerStatusUnknown"), (208, "lost", "killed")),
        (container(0, "ContainerStatusUnknown"), (208, "lost", "killed")),
        (container(205, "Error", "longboat launcher: no space"), (208, "lost", "no space")),
    ],
)
def test_ends_without_a_word_of_the_launcher(status: dict[str, Any], expected: tuple[int, str | None, str]) -> None:
    found = outcome_of(status)
    assert found is not None
    assert (found.exit_code, found.cause) == expected[:2] and expected[2] in found.message


@pytest.mark.parametrize("state", [{}, {"running": {}}, {"waiting": {"reason": "ContainerCreating"}}])
def test_what_has_not_ended(state: dict[str, Any]) -> None:
    assert outcome_of({"name": "main", "state": state}) is None


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {"status": {"phase": phase, **status}}


def disrupted(reason: str) -> list[dict[str, str]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": f"because of {reason}"}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (pod("Running", containerStatuses=[{"name": "main", "state": {"running": {}}}]), None),
        (pod("Pending"), None),
        (pod("Failed", reason="Evicted", message="low on memory"), ("preemption", "low on memory")),
        (pod("Failed", conditions=disrupted("PreemptionByScheduler")), ("preemption", "PreemptionByScheduler")),
        (pod("Failed", conditions=disrupted("DeletionByPodGC")), ("lost", "DeletionByPodGC")),
        (pod("Failed", reason="UnexpectedAdmissionError", message="no GPU left"), ("lost", "no GPU left")),
        (
            pod("Failed", conditions=disrupted("EvictionByEvictionAPI"), containerStatuses=[container(137)]),
            ("preemption", "EvictionByEvictionAPI"),
        ),
        (
            pod(
                "Failed",
                conditions=disrupted("EvictionByEvictionAPI"),
                containerStatuses=[container(143, "Error", json.dumps(WHOLE))],
            ),
            ("exception", "ValueError"),
        ),
        (pod("Failed", containerStatuses=[container(137, "OOMKilled")]), ("oom", "memory")),
    ],
)
def test_pods(body: dict[str, Any], expected: tuple[str, str] | None) -> None:
    found = outcome_of_pod(body)
    if expected is None:
        assert found is None
    else:
        assert found is not None and found.cause == expected[0] and expected[1] in found.message


def test_only_our_container_counts() -> None:
    sidecar = {**container(1), "name": "istio-proxy"}
    assert container_of(pod("Running", containerStatuses=[sidecar])) is None
    assert outcome_of_pod(pod("Running", containerStatuses=[sidecar])) is None
