"""How long a provider is left alone after which error, and who: as data."""

from __future__ import annotations

import pytest

from longboat.autoscaler.model.backoff import closed, pause, paused, until
from longboat.autoscaler.model.snapshot import AutoscalerSettings, FailureKind, Pool, ProviderFailure
from longboat.fitting.model.nodes import NodeShape

NOW = 1_000_000.0
KINDS: tuple[FailureKind, ...] = ("stockout", "quota", "auth", "throttled", "not-found", "other")


def pool(name: str = "gpu", **more: object) -> Pool:
    return Pool(name=name, machine=NodeShape(name=name, labels={}, allocatable=()), **more)  # type: ignore[arg-type]


def failure(kind: FailureKind, count: int = 1, **more: object) -> ProviderFailure:
    return ProviderFailure(**{"pool": "gpu", "kind": kind, "at": NOW, "count": count, "provider": "kwok", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("stockout", [900, 1800, 3600, 3600]),
        ("quota", [900, 1800, 3600, 3600]),
        ("not-found", [900, 1800, 3600, 3600]),
        ("other", [60, 120, 240, 480]),
    ],
)
def test_the_pause_doubles_up_to_its_end(kind: FailureKind, counts: list[float]) -> None:
    assert [pause(failure(kind, number), AutoscalerSettings()) for number in range(1, 5)] == counts
    assert pause(failure(kind, 1000), AutoscalerSettings()) == 3600


def test_a_short_back_off_is_short_for_unknown_errors_too() -> None:
    assert pause(failure("other"), AutoscalerSettings(backoff_s=5.0)) == 5


def test_throttling_is_waited_for_from_a_second_to_three_minutes_and_differently_by_pool_and_count() -> None:
    for number in range(1, 12):
        least = min(2.0 ** (number - 1), 120.0)
        assert least <= pause(failure("throttled", number), AutoscalerSettings()) <= 1.5 * least
    spread = {pause(failure("throttled", 9, pool=f"pool-{number}"), AutoscalerSettings()) for number in range(50)}
    assert len(spread) == 50 and max(spread) - min(spread) > 40, "they do not come back together"
    again = {pause(failure("throttled", 3), AutoscalerSettings()) for _ in range(5)}
    assert len(again) == 1, "the same refusal always means the same"


def test_only_rights_have_no_end() -> None:
    assert [kind for kind in KINDS if until(failure(kind), AutoscalerSettings()) is None] == ["auth"]
    assert until(failure("other", is_blind=True), AutoscalerSettings()) is None


def test_only_throttling_stops_everything_that_is_asked_of_the_provider() -> None:
    every = [failure(kind) for kind in KINDS]
    found = paused(every, "kwok", AutoscalerSettings(), NOW)
    assert found is not None and found.kind == "throttled"
    assert paused(every, "other", AutoscalerSettings(), NOW) is None
    assert paused(every, "kwok", AutoscalerSettings(), NOW + 2) is None


@pytest.mark.parametrize("kind", KINDS)
def test_whom_it_concerns(kind: FailureKind) -> None:
    settings = AutoscalerSettings()
    mine = closed(pool(zones=("a", "b")), [failure(kind, zone="a")], settings, NOW)
    assert [one.zone for one in mine] == (["a"] if kind in ("stockout", "other") else [None])
    neighbour = closed(pool("cpu"), [failure(kind)], settings, NOW)
    assert bool(neighbour) is (kind == "throttled")
    assert not closed(pool("cpu", provider="else"), [failure(kind)], settings, NOW)


def test_of_several_backoffs_the_longest_counts() -> None:
    failures = [failure("throttled"), failure("stockout"), failure("quota", at=NOW + 60)]
    (found,) = closed(pool(), failures, AutoscalerSettings(), NOW)
    assert found.kind == "quota" and not found.is_delay
    (found,) = closed(pool(), [*failures, failure("auth")], AutoscalerSettings(), NOW)
    assert found.kind == "auth" and found.until is None


@pytest.mark.parametrize(("count", "is_delay"), [(1, True), (4, True), (8, False)])
def test_orders_are_put_off_for_half_a_minute_at_most(count: int, is_delay: bool) -> None:
    (found,) = closed(pool(), [failure("throttled", count)], AutoscalerSettings(), NOW)
    assert found.is_delay is is_delay
