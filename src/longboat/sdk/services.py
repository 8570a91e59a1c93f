"""The services of an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longboat.engines.engine import Engine
    from longboat.serving.requests import Services


def services_of(engine: Engine, notice: Callable[[str], None]) -> Services:
    from longboat.engines.local.engine import LocalEngine

    if isinstance(engine, LocalEngine):
        from longboat.serving.local.services import LocalServices

        return LocalServices(engine, notice)
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.serving.kubernetes.services import ClusterServices

    assert isinstance(engine, KubernetesEngine)
    return ClusterServices(engine, notice)
