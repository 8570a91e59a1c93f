"""What is left of a run's timeout, over its attempts."""

from __future__ import annotations

from math import inf

from longboat.engines.shared.retry_policy import TimeLimit


def test_a_timeout_counts_from_the_first_start_of_ranks_and_not_while_an_attempt_is_made_ready() -> None:
    limit = TimeLimit(10.0)
    limit.prepare(0.0)
    assert limit.left_s(99.0) == inf, "images, data and setup have all the time they need"
    limit.start(100.0)
    assert (limit.left_s(100.0), limit.left_s(104.0), limit.left_s(111.0)) == (10.0, 6.0, 0.0)
    limit.prepare(105.0)  # one second after a failure, the next attempt
    assert limit.left_s(200.0) == inf
    limit.start(205.0)
    assert limit.left_s(205.0) == 5.0


def test_time_that_others_noted_counts_too() -> None:
    limit = TimeLimit(10.0)
    limit.start(50.0, earlier_s=4.0)
    assert limit.left_s(50.0) == 6.0
    assert TimeLimit(None).left_s(1e9) == inf
