from __future__ import annotations

import pytest

from longboat.cli.output.times import parse_duration, parse_moment, show_duration, show_moment
from longboat.core.errors import UsageError

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10m", NOW - 600),
        ("90", NOW - 90),
        ("1700000000.5", 1_700_000_000.5),
        ("2027-01-15T08:00:00Z", NOW),
        ("2027-01-15T09:00:00+01:00", NOW),
        ("2027-01-15 08:00", NOW),
        ("2027-01-15", NOW - 8 * 3600),
    ],
)
def test_moments(text: str, moment: float) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "2027-13-01", "-5m"])
def test_not_a_moment(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text, NOW)


def test_durations() -> None:
    assert parse_duration("1h30m") == 5400
    shown = [show_duration(s) for s in (None, 0, 0.44, 9.97, 59.6, 200, 3600, 18120, 349200, -1)]
    assert shown == [None, "0.0s", "0.4s", "10s", "1m", "3m20s", "1h", "5h2m", "4d1h", "0.0s"]


def test_moments_are_shown_in_utc_with_milliseconds() -> None:
    assert show_moment(NOW + 0.9996) == "2027-01-15T08:00:01.000Z"
    assert show_moment(None) is None
