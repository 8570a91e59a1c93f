"""Quantities, durations, CPUs and GPUs: what is understood, what is not, and that formats parse back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core import resources
from longboat.core.jobs import Gpus


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1024", 1024),
        ("16Gi", 16 * 2**30),
        ("16GiB", 16 * 2**30),
        ("16gi", 16 * 2**30),
        ("16GB", 16 * 10**9),
        ("16G", 16 * 10**9),
        ("512M", 512 * 10**6),
        ("1.5Gi", 3 * 2**29),
        ("0.1K", 100),
        ("2 Ti", 2 * 2**40),
        ("10B", 10),
    ],
)
def test_quantity(text: str, count: int) -> None:
    assert resources.parse_quantity(text) == count


@pytest.mark.parametrize("text", ["", "Gi", "16Gx", "-1", "1e3", "16 G B", "1,5G", "9" * 50, "nan", "16Gi\n16"])
def test_quantity_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match="such as 16Gi"):
        resources.parse_quantity(text)


@given(st.integers(0, resources.MAX_BYTES))
def test_quantity_round_trip(count: int) -> None:
    assert resources.parse_quantity(resources.format_quantity(count)) == count


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0B"), (1023, "1023B"), (2048, "2Ki"), (16_750_372_454, "15.6Gi"), (2**50, "1Pi")]
)
def test_quantity_for_people(count: int, text: str) -> None:
    assert resources.show_quantity(count) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1d", 86400), ("1h30m", 5400), ("0.5s", 0.5), ("9ms", 0.009)],
)
def test_duration(text: str, seconds: float) -> None:
    assert resources.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "12:30", "1x", "h", "-5", "1h 30m", "1h30", "1e3", "off"])
def test_duration_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90"):
        resources.parse_duration(text)


@given(st.integers(0, int(resources.MAX_DURATION_S)) | st.floats(0.001, resources.MAX_DURATION_S))
def test_duration_round_trip(seconds: float) -> None:
    assert resources.parse_duration(resources.format_duration(seconds)) == seconds


def test_duration_format() -> None:
    assert [resources.format_duration(s) for s in (0, 90, 5400, 90000, 0.5)] == ["0s", "1m30s", "1h30m", "1d1h", "0.5s"]


@pytest.mark.parametrize(("text", "cpus"), [("2", 2.0), ("0.5", 0.5), ("500m", 0.5), ("1500m", 1.5)])
def test_cpus(text: str, cpus: float) -> None:
    assert resources.parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "two", "0.5m", "-1", "1e2"])
def test_cpus_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match="number of CPUs"):
        resources.parse_cpus(text)


@given(st.floats(0.001, 4096))
def test_cpus_round_trip(cpus: float) -> None:
    assert resources.parse_cpus(resources.format_cpus(cpus)) == cpus


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("2", Gpus(count=2)),
        ("0", Gpus()),
        ("H100", Gpus(count=1, type="H100")),
        ("H100:8", Gpus(count=8, type="H100")),
        ("A100-80GB:4", Gpus(count=4, type="A100-80GB")),
    ],
)
def test_gpus(text: str, gpus: Gpus) -> None:
    assert resources.parse_gpus(text) == gpus


@pytest.mark.parametrize("text", ["", "H100:", ":8", "8:H100", "H100:x", "H100:8:8", "-1", "H 100"])
def test_gpus_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match="type:count"):
        resources.parse_gpus(text)
