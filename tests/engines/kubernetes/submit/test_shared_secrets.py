"""Which copy of a shared Secret a run uses, as data."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.engines.kubernetes.submit.shared_secrets import MOST_OWNERS, base_of, copy_for, with_room

BASE = "longboat-code-0123456789abcdef"
OTHER = "longboat-code-fedcba9876543210"


def secret(name: str, owners: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": [{"uid": str(number)} for number in range(owners)]}}


@pytest.mark.parametrize(
    ("name", "base"),
    [(BASE, BASE), (f"{BASE}-2", BASE), (f"{BASE}-17", BASE), ("longboat-launcher-x", "longboat-launcher-x")],
)
def test_the_number_of_a_copy_is_no_part_of_its_base(name: str, base: str) -> None:
    assert base_of(name) == base


@pytest.mark.parametrize(
    ("there", "name"),
    [
        ({}, BASE),
        ({OTHER: MOST_OWNERS}, BASE),
        ({BASE: 0}, BASE),
        ({BASE: MOST_OWNERS - 1}, BASE),
        ({BASE: MOST_OWNERS}, f"{BASE}-2"),
        ({BASE: MOST_OWNERS, f"{BASE}-2": 3}, f"{BASE}-2"),
        ({BASE: MOST_OWNERS, f"{BASE}-2": MOST_OWNERS + 5}, f"{BASE}-3"),
        ({f"{BASE}-2": MOST_OWNERS}, BASE),  # the first went with its owners
        ({BASE: 1, f"{BASE}-2": 7}, f"{BASE}-2"),  # the fullest, so that the others go with their last owners
    ],
)
def test_a_secret_with_too_many_owners_gets_a_copy(there: dict[str, int], name: str) -> None:
    assert copy_for(BASE, [secret(*each) for each in there.items()]) == name


def test_one_copy_of_each_is_offered() -> None:
    there = [secret(BASE, MOST_OWNERS), secret(f"{BASE}-2", 4), secret(f"{BASE}-3", 2), secret(OTHER, 0)]
    assert {base: body["metadata"]["name"] for base, body in with_room(there).items()} == {
        BASE: f"{BASE}-2",
        OTHER: OTHER,
    }
    assert with_room([{"metadata": {"name": BASE}}])
