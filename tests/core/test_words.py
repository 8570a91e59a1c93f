from __future__ import annotations

from longboat.core.words import listing


def test_the_first_are_named_and_the_others_counted() -> None:
    assert listing(["a", "b"], 2) == "a, b"
    assert listing(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert listing(["a", "b", "c"], 2, separator="; ") == "a; b and 1 more"
    assert listing(["a"], 3, count=4) == "a and 3 more"
    assert listing([], 3) == ""
