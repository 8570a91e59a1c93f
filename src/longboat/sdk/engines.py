"""Opens an engine by its name, or the one that is set as default."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from longboat.core.errors import UsageError
from longboat.engines.engine import Engine
from longboat.sdk.problems import plain_errors

if TYPE_CHECKING:
    from longboat.engines.local.settings import LocalSettings

ENGINES = ("local", "kubernetes")
ENGINE_VARIABLE = "LONGBOAT_ENGINE"


@plain_errors
def engine(
    name: str | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Engine:
    """The engine with this name: `local` keeps its runs in LONGBOAT_HOME, else ~/.longboat; `kubernetes` in a cluster.

    A context or namespace of the kubeconfig means the cluster. Without any of these: LONGBOAT_ENGINE, else what
    `longboat config set engine` was told, else this machine. `on_notice` is told what the user should know but that
    stops nothing.
    """
    name = name or default_engine(is_cluster=bool(context or namespace))
    if name == "kubernetes":
        from longboat.engines.kubernetes.engine import KubernetesEngine

        return KubernetesEngine(context=context, namespace=namespace, on_notice=on_notice)
    if name != "local":
        raise UsageError(f"no engine named {name!r}", hint=f"one of: {', '.join(ENGINES)}")
    if context or namespace:
        raise UsageError("the local engine has no contexts or namespaces", hint="leave --engine local out")
    from longboat.engines.local.engine import LocalEngine

    return LocalEngine(on_notice=on_notice, settings=local_settings())


def local_settings() -> LocalSettings:
    """What was set for this machine."""
    from longboat.engines.local.settings import LocalSettings

    if not has_settings():
        return LocalSettings()
    from longboat.engines.kubernetes.settings import read_settings

    return LocalSettings(**read_settings(os.environ).local)


def has_settings() -> bool:
    """Most have none: reading YAML takes time."""
    from longboat.engines.shared.home import Home

    return (Home().root / "config.yaml").exists()


def default_engine(*, is_cluster: bool) -> str:
    """What a command means that names no engine."""
    if is_cluster:
        return "kubernetes"
    named = os.environ.get(ENGINE_VARIABLE)
    if named:
        return named
    if not has_settings():
        return "local"
    from longboat.engines.kubernetes.settings import read_settings

    return read_settings(os.environ).engine
