"""Which scale sets an order goes to, and how many machines to each. Pure.

One set if one has room for all; else several of the same zone together. Sets that refused last come last, so that what
is sold out in one size is tried in another.
"""

from __future__ import annotations

from collections.abc import Sequence

from longboat.autoscaler.providers.azure.scale_sets import ScaleSet

Share = tuple[ScaleSet, int]
_ANY = 1 << 20  # a set without a max


def room_of(scale_set: ScaleSet) -> int:
    return _ANY if scale_set.max is None else max(scale_set.max - scale_set.capacity, 0)


def groups_of(sets: Sequence[ScaleSet], token: str, zone: str | None) -> list[list[ScaleSet]]:
    """Sets that an order may be divided over, those that have some of it already first: each of one zone."""
    begun = [each.zone for each in sets if each.ordered(token)]
    groups: dict[tuple[str | None, str], list[ScaleSet]] = {}
    for each in sets:
        if begun and each.zone not in begun or not begun and zone not in (None, each.zone):
            continue
        # In a set of several zones Azure chooses: it is never one of several.
        groups.setdefault((each.zone, "" if each.zone else each.name), []).append(each)
    return list(groups.values())


def shares_of(sets: Sequence[ScaleSet], token: str, missing: int) -> list[Share]:
    """What each is to get more; empty: they have no room for all of it, and nothing is ordered."""
    able = [each for each in sets if not _has_refused(each, token) and room_of(each)]
    able.sort(key=lambda each: (not each.ordered(token), _refused_last(each), each.name))
    whole = next((each for each in able if room_of(each) >= missing), None)
    if whole is not None:
        return [(whole, missing)]
    shares: list[Share] = []
    for each in sorted(able, key=lambda each: (-room_of(each), each.name)):  # few sets
        share = min(room_of(each), missing)
        shares, missing = [*shares, (each, share)], missing - share
        if not missing:
            return shares
    return []


def _has_refused(scale_set: ScaleSet, token: str) -> bool:
    return any(order.token == token and order.refused for order in scale_set.orders)


def _refused_last(scale_set: ScaleSet) -> bool:
    orders = scale_set.orders
    return bool(orders) and orders[-1].refused is not None
