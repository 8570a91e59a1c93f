"""Times as programs and people write them, and as they are shown."""

from __future__ import annotations

import pytest

from longboat.core.times import format_time, parse_iso_time, parse_time, show_age

AT = 1_794_726_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-15T07:00:00Z", AT),
        ("2026-11-15T07:00:00.250000Z", AT + 0.25),
        ("2026-11-15T07:00:00.250000000Z", AT + 0.25),
        ("2026-11-15T08:00:00+01:00", AT),
        ("2026-11-15T07:00:00", AT),
        ("2026-11-15", None),
        ("", None),
        (None, None),
        (7, None),
        ("yesterday", None),
    ],
)
def test_times_of_programs(text: object, expected: float | None) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-15T07:00:00Z", AT),
        ("2026-11-15 07:00", AT),
        ("2026-11-15T08:00:00+01:00", AT),
        ("2026-11-15", AT - 7 * 3600),
        ("2026-13-15", None),
        ("soon", None),
    ],
)
def test_times_of_people(text: str, expected: float | None) -> None:
    assert parse_iso_time(text) == expected


def test_times_are_written_in_utc() -> None:
    assert format_time(AT + 0.9) == "2026-11-15T07:00:00Z"
    assert format_time(AT + 0.9996, digits=3) == "2026-11-15T07:00:01.000Z"
    assert format_time(AT + 0.25, digits=6) == "2026-11-15T07:00:00.250000Z"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0s"), (3.4, "3s"), (59.6, "1m"), (200, "3m20s"), (18125, "5h2m"), (349200, "4d1h")]
)
def test_ages_have_two_units_at_most(seconds: float, text: str) -> None:
    assert show_age(seconds) == text
