"""Provider registry: from names in a pools file to providers; checks of what they describe against the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from longboat.autoscaler.model.provider_settings import CloudSettings, ExecSettings, ProviderSettings
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.aws.provider import AwsProvider
from longboat.autoscaler.providers.azure.provider import AzureProvider
from longboat.autoscaler.providers.exec import ExecProvider
from longboat.autoscaler.providers.gcp.provider import GoogleProvider
from longboat.autoscaler.providers.kwok import KwokProvider
from longboat.autoscaler.providers.provider import Description, DiscoveringProvider, Provider, ProviderError
from longboat.core.errors import UsageError
from longboat.fitting.model.quantities import amount, show_number
from longboat.kubeapi.client import Client


def open_providers(
    pools: tuple[Pool, ...], known: Mapping[str, ProviderSettings], client: Client, home: str
) -> dict[str, Provider]:
    """One for each name that a pool has or may get; all pools of a name share it."""
    check_named(pools, known)
    clouds = (name for name, settings in known.items() if isinstance(settings, CloudSettings))
    names = dict.fromkeys((*(pool.provider for pool in pools), *clouds))
    return {name: _open(name, known[name], client, home) for name in names}


def check_named(pools: tuple[Pool, ...], known: Mapping[str, ProviderSettings]) -> None:
    """Every pool names a provider that there is. Raises UsageError."""
    for pool in pools:
        if pool.provider not in known:
            names = ", ".join(sorted(known))
            hint = "describe it under `providers` of the pools file: docs/autoscaler.md"
            raise UsageError(f"pool {pool.name}: no provider {pool.provider}; there are: {names}", hint=hint)


def _open(name: str, settings: ProviderSettings, client: Client, home: str) -> Provider:
    if isinstance(settings, ExecSettings):
        return ExecProvider(name, settings)
    if isinstance(settings, CloudSettings):
        return _CLOUDS[settings.cloud](name, settings)
    return KwokProvider(client, home, settings)


_CLOUDS: dict[str, Callable[[str, CloudSettings], DiscoveringProvider]] = {
    "aws": AwsProvider,
    "azure": AzureProvider,
    "gcp": GoogleProvider,
}


def discover(
    pools: tuple[Pool, ...], known: Mapping[str, ProviderSettings]
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """All pools: those of the pools file, and those that clouds show beside them; and notes about what is left alone.

    A pool of the file stands for the cloud's of the same name. Raises ProviderError.
    """
    named = {pool.name for pool in pools}
    notes: list[str] = []
    for name, settings in known.items():
        if isinstance(settings, CloudSettings):
            there = _CLOUDS[settings.cloud](name, settings).discover()
            new = [_growing(pool, settings) for pool in there.pools if pool.name not in named]
            pools, notes = (*pools, *new), [*notes, *there.notes]
            named |= {pool.name for pool in new}
    if not pools and any(isinstance(settings, CloudSettings) for settings in known.values()):
        hint = "; ".join(notes[:3]) or "is there a cluster of this name in this region, and has it node groups?"
        raise ProviderError("the clouds show no pool", kind="not-found", hint=hint)
    return tuple(sorted(pools, key=lambda pool: pool.name)), tuple(notes)


def _growing(pool: Pool, settings: CloudSettings) -> Pool:
    return msgspec.structs.replace(pool, growth_s=settings.growth_s) if pool.spot else pool


def differences(pools: tuple[Pool, ...], providers: Mapping[str, Provider]) -> Iterator[str]:
    """Where a provider describes other machines than the pools file: what it makes would not be what was decided on."""
    for pool in pools:
        try:
            described = providers[pool.provider].describe(pool)
        except ProviderError as error:
            yield f"pool {pool.name}: {error.message}"
            continue
        for text in _differences(pool, described):
            yield f"pool {pool.name}: {text}"


def _differences(pool: Pool, described: Description) -> Iterator[str]:
    for name, quantity in sorted(described.allocatable.items()):
        theirs, ours = amount(name, quantity), pool.machine.has(name)
        if theirs < ours < 1 << 59 or (ours == 0 and theirs):
            yield f"its provider says {show_number(name, theirs)} {name}, the pools file {show_number(name, ours)}"
    for name, value in sorted(described.labels.items()):
        if name in pool.machine.labels and pool.machine.labels[name] != value:
            yield f"its provider says label {name}={value}, the pools file {pool.machine.labels[name]}"
    missing = [zone for zone in pool.zones if described.zones and zone not in described.zones]
    if missing:
        yield f"its provider has no zone {missing[0]}"
    if described.spot is not None and described.spot != pool.spot:
        yield f"its provider says spot: {str(described.spot).lower()}, the pools file {str(pool.spot).lower()}"
    if described.max is not None and described.max < pool.max:
        yield f"its provider makes {described.max} machines at most, the pools file says {pool.max}"
