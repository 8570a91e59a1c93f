"""A pools file for an autoscaler that is to be installed: read, checked, and its text."""

from __future__ import annotations

from pathlib import Path


def checked_pools(file: str) -> tuple[str, bool]:
    """Validate a pools file; returns its text and whether a pool is simulated (provider `kwok`). Raises JobError."""
    from longboat.autoscaler.model.pools_file import read_pools, read_providers
    from longboat.autoscaler.model.provider_settings import KwokSettings
    from longboat.autoscaler.providers.registry import check_named

    wanted, known = read_pools(file)[0], read_providers(file)
    check_named(wanted, known)
    simulates = any(isinstance(known[pool.provider], KwokSettings) for pool in wanted)
    return Path(file).read_text(encoding="utf-8"), simulates
