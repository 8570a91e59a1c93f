"""Configuration of a running autoscaler: pools, settings, providers, pace of the loop. Values only."""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec

from longboat.autoscaler.model.backoff import IN_ALL_ZONES
from longboat.autoscaler.model.provider_settings import ProviderSettings
from longboat.autoscaler.model.snapshot import AutoscalerSettings, FailureKind, Pool, ProviderFailure
from longboat.core.jobs import Value

INTERVAL_S = 10.0  # watches tell of the cluster at once; only providers' lists have to be asked for
LEAST_S, LONGEST_LEAST_S = 0.5, 2.0
"""A machine takes minutes to come: half a second between turns is lost in that. A turn that takes longer, in a large
cluster or with a slow cloud, is followed by as long a pause, up to the second."""
QUIET_S, GATHER_S = 0.2, 1.0
"""Changes come in bursts: one submission is several objects, made within a few hundredths of a second each. It is
decided when nothing has changed for the first, and after the second whatever goes on changing."""
SETTLE_S = 15.0
"""Between cordon and deletion: a scheduler that had not seen the cordon may still bind a pod. It sees it within a
second; binding then takes as long as the API server takes, which is counted in seconds when it is overloaded. Pods
whose volumes are still being made take longer, and are looked for by their claims."""
DISTRUST_S = 180.0
"""A list of machines that lost most of those that were ordered is not believed for so long. Clouds have answered with
empty lists for a minute or two; machines that are really gone are missed for three minutes at most."""


class LoopPace(Value, frozen=True):
    interval_s: float = INTERVAL_S  # looked at so often although nothing changes
    least_s: float = LEAST_S  # between two turns, however much changes
    quiet_s: float = QUIET_S  # without a change, and what came before is decided together
    gather_s: float = GATHER_S  # the longest that changes are waited for
    settle_s: float = SETTLE_S  # between cordon and deletion
    distrust_s: float = DISTRUST_S  # after a list that lost most machines at once


class AutoscalerConfig(Value, frozen=True, dict=True):
    pools: tuple[Pool, ...]
    settings: AutoscalerSettings = AutoscalerSettings()
    home: str = "default"  # where the memory is kept
    pace: LoopPace = LoopPace()
    is_dry: bool = False
    providers: dict[str, ProviderSettings] = {}
    notes: tuple[str, ...] = ()  # machines of clouds that are left alone, and why

    @cached_property
    def setups(self) -> dict[str, str]:
        """Pool -> a mark of what the pools file says about it and its provider: another one when either changes."""
        hashes = {}
        for pool in self.pools:
            text = msgspec.json.encode([pool, self.providers.get(pool.provider)], order="sorted")
            hashes[pool.name] = hashlib.sha256(text).hexdigest()[:16]
        return hashes

    def refusal(self, pool: str, kind: FailureKind, now: float, *, zone: str | None = None) -> ProviderFailure:
        """The refusal to be stored for backoff."""
        provider = next((pool_settings.provider for pool_settings in self.pools if pool_settings.name == pool), "")
        setup = self.setups.get(pool, "") if kind == "auth" else ""
        zone = None if kind in IN_ALL_ZONES else zone
        return ProviderFailure(pool=pool, kind=kind, at=now, zone=zone, provider=provider, setup=setup)
