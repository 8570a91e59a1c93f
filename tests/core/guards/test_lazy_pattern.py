"""A lazy pattern is what `re.compile` gives, only later."""

from __future__ import annotations

import re

import pytest

from longboat.core.guards.lazy_pattern import lazy_pattern


def test_it_is_compiled_once_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(
        "longboat.core.guards.lazy_pattern.re.compile", lambda *given: compiled.append(given) or _compile(*given)
    )
    pattern = lazy_pattern(r"(?P<letter>[a-c])", re.IGNORECASE)
    assert not compiled
    found = pattern.fullmatch("B")
    assert found is not None and found["letter"] == "B"
    assert pattern.search("xyz") is None and pattern.sub("-", "abc") == "---"
    assert pattern.findall("ab") == ["a", "b"] and pattern.pattern == r"(?P<letter>[a-c])"
    assert len(compiled) == 1


_compile = re.compile


def test_bytes_too() -> None:
    assert lazy_pattern(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_mistake_shows_at_its_first_use() -> None:
    pattern = lazy_pattern("(")
    with pytest.raises(re.error):
        pattern.match("x")
