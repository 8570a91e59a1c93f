"""Which checkpoints `keep` removes: decisions as data, then by property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.storage.retention import Candidate, Retention, kept_steps, promoted_steps, retention_of


def saved(*steps: int, every_s: float = 60.0, **metrics: float) -> list[Candidate]:
    return [Candidate(step, time=number * every_s, metrics=metrics) for number, step in enumerate(steps)]


def scored(**scores: float) -> list[Candidate]:
    return [Candidate(int(name[1:]), metrics={"accuracy": value}) for name, value in scores.items()]


SCORES = scored(s1=0.5, s2=0.9, s3=0.9, s4=0.1, s5=0.2)


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (Retention(last=2), {4, 5}),
        (Retention(last=0), {1, 2, 3, 4, 5}),
        (Retention(last=1, best=1, metric="accuracy"), {3, 5}),  # of equal ones the later
        (Retention(last=1, best=2, metric="accuracy"), {2, 3, 5}),
        (Retention(last=1, best=1, metric="accuracy", goal="min"), {4, 5}),
        (Retention(last=1, best=1, metric="loss"), {5}),  # nobody reported it
    ],
)
def test_newest_and_best_are_kept(rule: Retention, kept: set[int]) -> None:
    assert kept_steps(SCORES, rule) == kept


def test_a_nan_is_never_the_best() -> None:
    candidates = scored(s1=float("nan"), s2=0.1, s3=float("nan"))
    assert kept_steps(candidates, Retention(last=1, best=1, metric="accuracy")) == {2, 3}


def test_one_of_each_period_is_kept() -> None:
    every_10_min = saved(*range(19), every_s=600.0)
    assert kept_steps(every_10_min, Retention(last=1, every_s=3600.0)) == {0, 6, 12, 18}


def test_a_promoted_one_is_kept() -> None:
    assert kept_steps(SCORES, Retention(last=1), promoted={2, 77}) == {2, 5}
    assert promoted_steps([".promoted-step-2", ".promoted-step-x", "step-3", ".attempt-1"]) == {2}


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (3, Retention(last=3)),
        ({"best": 1, "metric": "loss", "goal": "min"}, Retention(best=1, metric="loss", goal="min")),
        ({"last": 2, "every_s": 60.0}, Retention(last=2, every_s=60.0)),
        ({"last": "many"}, Retention(last=0)),
        (None, Retention(last=0)),
    ],
)
def test_what_a_plan_says(raw: object, rule: Retention) -> None:
    """What is damaged keeps all: nothing is removed by a word that was not understood."""
    assert retention_of(raw) == rule


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        step=st.integers(0, 50),
        time=st.floats(0, 1e5),
        metrics=st.dictionaries(st.just("loss"), st.floats(), max_size=1),
    ),
    max_size=20,
    unique_by=lambda candidate: candidate.step,
)
RULES = st.builds(
    Retention,
    last=st.integers(0, 4),
    best=st.integers(0, 3),
    metric=st.just("loss"),
    goal=st.sampled_from(["max", "min"]),
    every_s=st.sampled_from([0.0, 100.0]),
)


@given(CANDIDATES, RULES, st.sets(st.integers(0, 50)))
def test_newest_and_promoted_stay_and_a_second_look_removes_nothing_more(
    candidates: list[Candidate], rule: Retention, promoted: set[int]
) -> None:
    kept = kept_steps(candidates, rule, promoted)
    steps = {candidate.step for candidate in candidates}
    assert kept <= steps
    if steps:
        assert max(steps) in kept
    assert promoted & steps <= kept
    left = [candidate for candidate in candidates if candidate.step in kept]
    assert kept_steps(left, rule, promoted) == kept
