"""The share of each rank in a batch: exactly the batch, for every number of ranks."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longboat


def shares(size: int, world: int, *, batch: str = "global") -> list[int]:
    given_size = []
    for rank in range(world):
        environment = {"LONGBOAT_BATCH": batch, "RANK": str(rank), "WORLD_SIZE": str(world), "LONGBOAT_RANK": str(rank)}
        with mock.patch.dict(os.environ, environment):
            given_size.append(longboat.batch_size(size))
    return given_size


@given(st.integers(1, 64), st.integers(0, 4000))
def test_the_shares_make_exactly_the_batch(world: int, more: int) -> None:
    size = world + more
    given_size = shares(size, world)
    assert sum(given_size) == size and max(given_size) - min(given_size) <= 1
    assert given_size == sorted(given_size, reverse=True)


def test_the_batch_of_a_rank_is_its_own() -> None:
    assert shares(32, 3, batch="") == [32, 32, 32]


def test_a_batch_that_is_too_small() -> None:
    with pytest.raises(ValueError, match="a batch of 3 for 4 ranks"):
        shares(3, 4)
