"""Demand met by pool minimums: machines come for a pool's `min` anyway, and who runs on them needs no others. Pure.

Decided twice where a pool is below its min and something is bought for demand elsewhere: as it is, and as if these
machines of that pool, with those that are bought there for demand, and no more of them, cost nothing. What is cheaper
in truth is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from longboat.autoscaler.purchase.offers import Fits, PoolOffer
from longboat.autoscaler.purchase.purchase import price_key
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.headroom import ScaleUp

Growing = Callable[[Mapping[str, PoolOffer]], tuple[ScaleUp, Fleets]]


def using_min(growing: Growing, offers: Mapping[str, PoolOffer]) -> tuple[ScaleUp, Fleets]:
    growth, fleets = growing(offers)
    if not growth.for_min or not set(growth.bought) - set(growth.for_min):
        return growth, fleets
    free = {name: _free(offer, growth.for_min.get(name)) for name, offer in offers.items()}
    other, other_fleets = growing(free)
    if _refused(other) > _refused(growth) or _price(other, offers) >= _price(growth, offers):
        return growth, fleets
    # Whoever looks for cheaper machines afterwards goes by what they cost.
    other.budget.offers, other.fits = dict(offers), Fits(dict(offers))
    return other, other_fleets


def _free(offer: PoolOffer, count: int | None) -> PoolOffer:
    if count is None:
        return offer
    return msgspec.structs.replace(offer, pool=msgspec.structs.replace(offer.pool, price=0.0), room=count)


def _refused(growth: ScaleUp) -> int:
    return sum(1 for item in growth.waiting if item.expected is None)


def _price(growth: ScaleUp, offers: Mapping[str, PoolOffer]) -> float:
    return sum(price_key(offers[name]) * count for name, count in growth.bought.items())
