"""What the providers show of their machines, and of those that cannot be asked now: why. It asks, and only reads.

A provider that throttles is not asked at all until its pause is over. One whose list cannot be had is tried again in
every loop; meanwhile nothing is bought from it or deleted there. A list that was refused for lack of rights and then
works shows that rights have changed: its pools that are off for that reason may be asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from longboat.autoscaler.backoffs import closed, paused
from longboat.autoscaler.charges import Charge
from longboat.autoscaler.memory import Memory, failed
from longboat.autoscaler.providers.provider import Machine, Provider, ProviderError, Refusal, Seen
from longboat.autoscaler.snapshot import Failure, Pool
from longboat.core.jobs import Value


class Sight(Value, frozen=True):
    seen: Seen
    memory: Memory  # with what is to be remembered of this look
    blind: dict[str, str] = {}  # pools whose provider cannot be asked, and why: they are left alone
    blocked: tuple[Failure, ...] = ()  # refusals of this moment only


def see(providers: Mapping[str, Provider], charge: Charge, memory: Memory, now: float) -> Sight:
    """Of pools whose provider cannot be asked: what was known."""
    machines: list[Machine] = []
    refusals: list[Refusal] = []
    blind: dict[str, str] = {}
    blocked: list[Failure] = []
    for name in sorted({pool.provider for pool in charge.pools}):
        mine = [pool for pool in charge.pools if pool.provider == name]
        pause = paused(memory.failures, name, charge.settings, now)
        if pause is not None:
            blind.update({pool.name: _why(pool, pause, charge, now) for pool in mine})
            continue
        try:
            found = providers[name].list(mine)
        except ProviderError as error:
            memory, momentary = _noted(memory, mine, error, charge, now)
            blocked += momentary
            blind.update({pool.name: error.message for pool in mine})
            continue
        memory = _renewed(memory, mine)
        machines += found.machines
        refusals += found.refusals
    for order in memory.orders:
        if order.pool in blind:
            machines += [Machine(id=one, pool=order.pool, zone=order.zone) for one in order.machines]
    seen = Seen(machines=tuple(machines), refusals=tuple(refusals))
    return Sight(seen=seen, memory=memory, blind=blind, blocked=tuple(blocked))


def _why(pool: Pool, pause: Failure, charge: Charge, now: float) -> str:
    return closed(pool, (pause,), charge.settings, now)[0].reason


def _noted(
    memory: Memory, pools: Sequence[Pool], error: ProviderError, charge: Charge, now: float
) -> tuple[Memory, list[Failure]]:
    """What a list that failed means: to be remembered, or of this moment only."""
    message = error.message
    if error.kind == "throttled":
        new = charge.refusal(pools[0].name, "throttled", now)
        return failed(memory, msgspec.structs.replace(new, message=message)), []
    momentary = [
        msgspec.structs.replace(charge.refusal(pool.name, error.kind, now), message=message, is_blind=True)
        for pool in pools
    ]
    if error.kind != "auth":
        return memory, momentary
    known = {one.pool for one in memory.failures if one.is_blind}
    for one in momentary:
        if one.pool not in known:  # the same again is not worth a write in every loop
            memory = failed(memory, one)
    return memory, []


def _renewed(memory: Memory, pools: Sequence[Pool]) -> Memory:
    """After a list that was had."""
    names = {pool.name for pool in pools}
    if not any(one.is_blind and one.pool in names for one in memory.failures):
        return memory
    left = tuple(one for one in memory.failures if not (one.kind == "auth" and one.pool in names))
    return msgspec.structs.replace(memory, failures=left)
