"""One look at the cluster and its providers: the Snapshot that `decide` reads, and the orders as they stand by it.

Everything is read and nothing written. The loop looks so in every turn, `longboat autoscaler plan` once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.snapshot import ClusterSnapshot
from longboat.autoscaler.observe.instances import list_instances
from longboat.autoscaler.observe.orders import OrderBook, reconcile
from longboat.autoscaler.observe.watch import Objects, joined_in, snapshot_from
from longboat.autoscaler.providers.provider import Provider, ProviderAnswer
from longboat.core.jobs import Value


class Observation(Value, frozen=True):
    """What was seen, at one moment."""

    now: float
    objects: Objects
    instances: ProviderAnswer
    blind: dict[str, str]  # pools whose provider cannot be asked, and why: they are left alone
    book: OrderBook  # to be written down before anything is done
    snapshot: ClusterSnapshot


def observe(
    read_objects: Callable[[], Objects],
    config: AutoscalerConfig,
    providers: Mapping[str, Provider],
    book: OrderBook,
    clock: Callable[[], float],
) -> Observation:
    """`read_objects` is called twice: machines may have joined while their providers were asked."""
    listed = list_instances(providers, config, book, clock(), joined_in(read_objects()))
    objects, now = read_objects(), clock()
    if listed.until is not None and now >= listed.until:
        # A pause that ended after its provider was passed over: it is decided as of a moment before, when nothing could
        # be asked of it, rather than order from somebody whose machines were not looked at. The next turn is at once.
        now = math.nextafter(listed.until, 0.0)
    book = reconcile(listed.book, listed.seen, joined_in(objects), config, now)
    snapshot = snapshot_from(objects, config.pools, book, listed.seen, now, listed.blocked)
    return Observation(
        now=now, objects=objects, instances=listed.seen, blind=listed.blind, book=book, snapshot=snapshot
    )
