"""Backoff after a provider's refusal: which pools and zones are not asked for how long, by the kind of error. Pure.

| kind      | who is left alone         | how long                                                                     |
|-----------|---------------------------|------------------------------------------------------------------------------|
| stockout  | the pool in that zone     | `backoff`, doubling up to `backoff_max`                                      |
| quota     | the pool, in all zones    | the same                                                                     |
| not-found | the pool, in all zones    | the same                                                                     |
| other     | the pool in that zone     | a minute, doubling up to `backoff_max`                                       |
| throttled | all pools of the provider | a second, doubling up to two minutes, and up to half of it on top, spread by |
|           |                           | the name of the pool and the count                                           |
| auth      | the pool, in all zones    | until something changes                                                      |

A short pause for a provider that throttles only puts orders off: another, dearer pool is not taken because of seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from longboat.autoscaler.model.snapshot import AutoscalerSettings, FailureKind, Pool, ProviderFailure
from longboat.core.jobs import Value
from longboat.core.times import format_time

IN_ALL_ZONES: tuple[FailureKind, ...] = ("quota", "auth", "not-found")
OTHER_S = 60.0  # nobody knows what was wrong: sooner than where machines are known to be sold out
THROTTLE_S, THROTTLE_MAX_S, THROTTLE_SPREAD = 1.0, 120.0, 0.5  # clouds refill a budget of requests by the second
PATIENT_S = 30.0
"""So long an order is put off rather than given to another pool."""
MOST_SAID = 200  # clouds answer with pages; the first words name the cause


class BackoffWindow(Value, frozen=True):
    """Backoff of a pool or of one of its zones, and when it ends."""

    kind: FailureKind
    reason: str
    zone: str | None = None  # None: in all of them
    until: float | None = None  # None: until something changes
    count: int = 1  # refusals in a row
    is_delay: bool = False  # so short that orders are only put off


def until(failure: ProviderFailure, settings: AutoscalerSettings) -> float | None:
    """When it may be asked again; None: not before something has changed."""
    if failure.kind == "auth" or failure.is_blind:
        return None
    return failure.at + pause(failure, settings)


def pause(failure: ProviderFailure, settings: AutoscalerSettings) -> float:
    most = max(settings.backoff_max_s, settings.backoff_s)
    if failure.kind == "throttled":
        return _doubled(THROTTLE_S, failure.count, THROTTLE_MAX_S) * (1.0 + THROTTLE_SPREAD * _spread(failure))
    if failure.kind == "other":
        return _doubled(min(OTHER_S, settings.backoff_s), failure.count, most)
    return _doubled(settings.backoff_s, failure.count, most)


def pause_end(failure: ProviderFailure, settings: AutoscalerSettings) -> float:
    return failure.at + pause(failure, settings)


def _doubled(first: float, count: int, most: float) -> float:
    return min(first * 2.0 ** min(max(count - 1, 0), 30), most)


def _spread(failure: ProviderFailure) -> float:
    """From 0 to 1, always the same for the same refusal: those who were throttled together must not return together."""
    mark = hashlib.sha256(f"{failure.pool}/{failure.count}".encode()).digest()
    return int.from_bytes(mark[:4], "big") / 2.0**32


def is_remembered(
    failure: ProviderFailure, settings: AutoscalerSettings, now: float, setups: Mapping[str, str]
) -> bool:
    """Whether the count still matters; of an `auth` whether nothing has changed in the pools file."""
    if failure.kind == "auth":
        return setups.get(failure.pool, failure.setup) == failure.setup
    if failure.kind == "throttled":
        return now < failure.at + pause(failure, settings) + THROTTLE_MAX_S
    return now < failure.at + 2 * max(settings.backoff_s, settings.backoff_max_s)


def is_same(failure: ProviderFailure, other: ProviderFailure) -> bool:
    """Whether the later one is one more in a row."""
    if failure.kind != other.kind or failure.is_blind != other.is_blind:
        return False
    if failure.kind == "throttled":
        return failure.provider == other.provider
    return failure.pool == other.pool and (failure.zone == other.zone or failure.kind in IN_ALL_ZONES)


def paused(
    failures: Iterable[ProviderFailure], provider: str, settings: AutoscalerSettings, now: float
) -> ProviderFailure | None:
    """The refusal because of which nothing is asked of this provider at the moment."""
    mine = [
        provider_failure
        for provider_failure in failures
        if provider_failure.kind == "throttled"
        and provider_failure.provider == provider
        and not provider_failure.is_blind
    ]
    lasting = [failure for failure in mine if failure.at + pause(failure, settings) > now]
    return max(lasting, key=lambda failure: failure.at + pause(failure, settings), default=None)


def closed(
    pool: Pool, failures: Iterable[ProviderFailure], settings: AutoscalerSettings, now: float
) -> tuple[BackoffWindow, ...]:
    """Current backoff windows of this pool, the longest of every zone."""
    windows: dict[str | None, BackoffWindow] = {}
    for provider_failure in sorted(failures, key=lambda failure: (failure.kind, failure.at, failure.message)):
        if not _concerns(provider_failure, pool):
            continue
        moment = until(provider_failure, settings)
        if moment is not None and moment <= now:
            continue
        zone = (
            provider_failure.zone
            if provider_failure.zone in pool.zones and provider_failure.kind not in (*IN_ALL_ZONES, "throttled")
            else None
        )
        is_delay = provider_failure.kind == "throttled" and moment is not None and moment - now <= PATIENT_S
        new = BackoffWindow(
            kind=provider_failure.kind,
            reason=_words(provider_failure, pool, moment),
            zone=zone,
            until=moment,
            count=provider_failure.count,
            is_delay=is_delay,
        )
        if zone not in windows or _is_longer(new, windows[zone]):
            windows[zone] = new
    return tuple(windows[zone] for zone in sorted(windows, key=lambda zone: zone or ""))


def _concerns(failure: ProviderFailure, pool: Pool) -> bool:
    if failure.kind == "throttled" and failure.provider:
        return failure.provider == pool.provider
    return failure.pool == pool.name


def _is_longer(window: BackoffWindow, other: BackoffWindow) -> bool:
    if window.until is None or other.until is None:
        return other.until is not None
    return window.until > other.until


def _words(failure: ProviderFailure, pool: Pool, moment: float | None) -> str:
    said = f" ({failure.message[:MOST_SAID]})" if failure.message else ""
    if failure.is_blind:
        return f"its provider {pool.provider} cannot be asked: {failure.kind}{said}; tried again in every loop"
    if moment is None:
        again = f"`longboat autoscaler retry {pool.name}` or a change of it in the pools file has it asked again"
        return f"off because of {failure.kind}{said}; {again}"
    if failure.kind == "throttled":
        return f"throttled{said}, its provider {pool.provider} is not asked before {format_time(moment)}"
    return f"{failure.kind}{said}, not asked again before {format_time(moment)}"
