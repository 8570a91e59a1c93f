"""Instances as the providers list them, and why a provider cannot be asked or believed now. Reads only.

A provider that throttles is not asked at all until its pause is over. One whose list cannot be had is tried again in
every loop; meanwhile nothing is bought from it or deleted there. A list that was refused for lack of rights and then
works shows that rights have changed: its pools that are off for that reason may be asked again. A list that lacks most
of the machines that were ordered is not believed for a while: nothing is bought again or forgotten because of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from longboat.autoscaler.model.backoff import closed, pause_end, paused
from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.snapshot import Pool, ProviderFailure
from longboat.autoscaler.observe.from_objects import Body
from longboat.autoscaler.observe.orders import LAG_S, JoinedInstances, OrderBook, failed, is_another
from longboat.autoscaler.providers.provider import Instance, Provider, ProviderAnswer, ProviderError, Refusal
from longboat.core.jobs import Value
from longboat.core.times import format_time

NOBODY = JoinedInstances(())


class InstanceList(Value, frozen=True):
    seen: ProviderAnswer
    book: OrderBook  # with what is to be remembered of this look
    blind: dict[str, str] = {}  # pools whose provider cannot be asked, and why: they are left alone
    blocked: tuple[ProviderFailure, ...] = ()  # refusals of this moment only
    until: float | None = None  # the first end of a pause because of which a provider was not asked, or gave no list


FEW = 2
"""Fewer machines than this that are missing are nothing unusual: one that was reclaimed, say."""


class NodeInstances:
    """Which machine is behind a node: that of its providerID, else of its name.

    A cloud gives the address of a machine that ends, or is gone, to a new one, and the name of a node with it: by the
    name alone the one would be taken for the other.
    """

    def __init__(self, seen: ProviderAnswer) -> None:
        self._by_id = {machine.id: machine for machine in seen.machines}
        ending_first = sorted(seen.machines, key=lambda machine: machine.state != "stopping")
        self._by_node = {machine.node: machine for machine in ending_first if machine.node}

    def of(self, body: Body) -> Instance | None:
        """None: the provider has no such machine."""
        name, own = body["metadata"]["name"], (body.get("spec") or {}).get("providerID") or ""
        same = self._by_id.get(own) or self._by_id.get(name) or self._by_node.get(own)
        named = self._by_node.get(name)
        return same or (named if named is not None and not is_another(named.id, own) else None)


def list_instances(
    providers: Mapping[str, Provider],
    config: AutoscalerConfig,
    book: OrderBook,
    now: float,
    joined: JoinedInstances = NOBODY,
) -> InstanceList:
    """Instances of all providers; where a provider fails, as last known. `joined`: machines that are nodes."""
    machines: list[Instance] = []
    refusals: list[Refusal] = []
    blind: dict[str, str] = {}
    blocked: list[ProviderFailure] = []
    ends: list[float] = []
    for name in sorted({pool.provider for pool in config.pools}):
        mine = [pool for pool in config.pools if pool.provider == name]
        pause = paused(book.failures, name, config.settings, now)
        if pause is not None:
            blind.update({pool.name: _why(pool, pause, config, now) for pool in mine})
            ends.append(pause_end(pause, config.settings))
            continue
        try:
            answer = providers[name].list(mine)
        except ProviderError as error:
            book, momentary = _noted(book, mine, error, config, now)
            if (begun := paused(book.failures, name, config.settings, now)) is not None:
                ends.append(pause_end(begun, config.settings))
            blocked += momentary
            blind.update({pool.name: error.message for pool in mine})
            continue
        book = _renewed(book, mine)
        book, doubted = _incomplete_lists(book, mine, answer, joined, config, now)
        blind.update({failure.pool: failure.message for failure in doubted})
        blocked += doubted
        machines += [instance for instance in answer.machines if instance.pool not in blind]
        refusals += [refusal for refusal in answer.refusals if refusal.pool not in blind]
    for order in book.orders:
        if order.pool in blind:
            machines += [Instance(id=machine, pool=order.pool, zone=order.zone) for machine in order.machines]
    seen = ProviderAnswer(machines=tuple(machines), refusals=tuple(refusals))
    return InstanceList(seen=seen, book=book, blind=blind, blocked=tuple(blocked), until=min(ends, default=None))


def _incomplete_lists(
    book: OrderBook,
    pools: Sequence[Pool],
    answer: ProviderAnswer,
    joined: JoinedInstances,
    config: AutoscalerConfig,
    now: float,
) -> tuple[OrderBook, list[ProviderFailure]]:
    """Pools whose list lacks most of what was ordered, while that is not believed; and since when, remembered."""
    there = {instance.id for instance in answer.machines}
    doubts = dict(book.doubts)
    blocked = []
    for pool in pools:
        waiting = [
            machine
            for order in book.orders
            if order.pool == pool.name and now - order.asked >= LAG_S
            for machine in order.machines
            if not joined.has(machine)
        ]
        lost = [machine for machine in waiting if machine not in there]
        if len(lost) < FEW or 2 * len(lost) <= len(waiting):
            doubts.pop(pool.name, None)
            continue
        until = doubts.setdefault(pool.name, now) + config.pace.distrust_s
        if now < until:
            message = (
                f"its provider's list lacks {len(lost)} of {len(waiting)} machines that were ordered; "
                f"not believed before {format_time(until)}"
            )
            new = config.refusal(pool.name, "other", now)
            blocked.append(msgspec.structs.replace(new, message=message, is_blind=True))
    if doubts == book.doubts:
        return book, blocked
    return msgspec.structs.replace(book, doubts=doubts), blocked


def _why(pool: Pool, pause: ProviderFailure, config: AutoscalerConfig, now: float) -> str:
    return closed(pool, (pause,), config.settings, now)[0].reason


def _noted(
    book: OrderBook, pools: Sequence[Pool], error: ProviderError, config: AutoscalerConfig, now: float
) -> tuple[OrderBook, list[ProviderFailure]]:
    """What a list that failed means: to be remembered, or of this moment only."""
    message = error.message
    if error.kind == "throttled":
        new = config.refusal(pools[0].name, "throttled", now)
        return failed(book, msgspec.structs.replace(new, message=message)), []
    momentary = [
        msgspec.structs.replace(config.refusal(pool.name, error.kind, now), message=message, is_blind=True)
        for pool in pools
    ]
    if error.kind != "auth":
        return book, momentary
    known = {failure.pool for failure in book.failures if failure.is_blind}
    for provider_failure in momentary:
        if provider_failure.pool not in known:  # the same again is not worth a write in every loop
            book = failed(book, provider_failure)
    return book, []


def _renewed(book: OrderBook, pools: Sequence[Pool]) -> OrderBook:
    """After a list that was had."""
    names = {pool.name for pool in pools}
    if not any(failure.is_blind and failure.pool in names for failure in book.failures):
        return book
    left = tuple(
        provider_failure
        for provider_failure in book.failures
        if not (provider_failure.kind == "auth" and provider_failure.pool in names)
    )
    return msgspec.structs.replace(book, failures=left)
