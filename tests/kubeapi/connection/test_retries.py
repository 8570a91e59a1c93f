"""What is asked again, and after which pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.kubeapi.connection import retries
from longboat.kubeapi.connection.retries import FailedRequest


@pytest.mark.parametrize(
    ("failure", "if_same_twice", "if_not"),
    [
        (FailedRequest(429), True, True),
        (FailedRequest(503, retry_after_s=1.0), True, True),
        (FailedRequest(503), True, False),
        (FailedRequest(500), True, False),
        (FailedRequest(502), True, False),
        (FailedRequest(504), True, False),
        (FailedRequest(sent=True), True, False),
        (FailedRequest(sent=False), True, True),
        (FailedRequest(404), False, False),
        (FailedRequest(409), False, False),
        (FailedRequest(422), False, False),
    ],
)
def test_only_what_is_safe_is_repeated(failure: FailedRequest, if_same_twice: bool, if_not: bool) -> None:
    assert retries.is_worth_repeating(failure, may_repeat=True) == if_same_twice
    assert retries.is_worth_repeating(failure, may_repeat=False) == if_not


@given(st.integers(1, 50), st.floats(0, 60), st.none() | st.floats(0, 100))
def test_pauses_are_bounded_and_what_the_server_asked_for(attempt: int, spent: float, told: float | None) -> None:
    pause = retries.pause_s(FailedRequest(429, told), attempt, spent_s=spent)
    if pause is None:
        assert spent + max(retries.LONGEST_S * 1.25, (told or 0.0) + 0.25) >= retries.TOTAL_S
    else:
        assert spent + pause < retries.TOTAL_S
        assert pause >= (told or 0.0)


def test_pauses_grow() -> None:
    pauses = [retries.pause_s(FailedRequest(500), attempt, spent_s=0.0) or 0.0 for attempt in (1, 4, 9)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.2 and pauses[2] > 2.0


@pytest.mark.parametrize(
    ("header", "found"), [(None, None), ("3", 3.0), ("", None), ("Wed, 21 Oct", None), ("-1", 0.0)]
)
def test_retry_after(header: str | None, found: float | None) -> None:
    assert retries.seconds(header) == found
