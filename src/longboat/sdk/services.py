"""The services of an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longboat.core.runs import Explanation
    from longboat.engines.engine import Engine
    from longboat.serving.requests import Services


MOST_EVENTS = 10  # the latest, of a service that is not well: what it meets repeats itself
ENDED = " ended: "  # of a replica that nobody had told to: a service may be ready between two of them


def services_of(engine: Engine, notice: Callable[[str], None]) -> Services:
    from longboat.engines.local.engine import LocalEngine

    if isinstance(engine, LocalEngine):
        from longboat.serving.local.services import LocalServices

        return LocalServices(engine, notice)
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.serving.kubernetes.services import ClusterServices

    assert isinstance(engine, KubernetesEngine)
    return ClusterServices(engine, notice)


def explain_service(engine: Engine, name: str) -> Explanation | None:
    """What is to be said of the service of this name; None: there is none, or it may not be seen."""
    from longboat.bundles.source.mentions import in_failure
    from longboat.core.errors import LongboatError
    from longboat.core.runs import Explanation

    try:
        services = services_of(engine, lambda text: None)
        status = services.status(name)
        events = tuple(services.events(name)[-MOST_EVENTS:])
    except LongboatError:
        return None
    served = status.run if status.step is None else f"{status.run}:{status.step}"
    reason = f": {status.reason}" if status.reason else ""
    follows = [f"it follows the {status.follow} checkpoint of {status.run}{_who_follows(services)}"]
    steps = [f"longboat serve logs {name}"] if reason else []
    if in_failure([reason]):
        steps.append(
            f"its replicas have the code of {status.run} as it was trained: `longboat serve {status.run} --name {name} "
            "--fresh-code -- COMMAND` takes what the folder holds now"
        )
    return Explanation(
        run=name,
        phase="failed" if status.phase == "failed" else "running",
        headline=f"the service {name} is {status.phase}{reason}",
        facts=(
            f"{status.ready} of {status.replicas} replicas ready, {served} is served at {status.url}",
            *(follows if status.follow else ()),
        ),
        lines=events if status.phase != "ready" or any(ENDED in event for event in events) else (),
        next_steps=tuple(steps),
    )


def _who_follows(services: Services) -> str:
    """In a cluster somebody has to; on this machine services do by themselves."""
    from longboat.serving.kubernetes.services import ClusterServices

    if not isinstance(services, ClusterServices):
        return ""
    if services.has_controller():
        return ", which the controller gives it"
    return ", while `longboat serve follow` runs: no controller serves this namespace"
