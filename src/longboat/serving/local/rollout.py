"""How far the last change of a service is: which version serves, which one was asked for, whether it is there. Pure."""

from __future__ import annotations

import msgspec

from longboat.core.errors import Refused
from longboat.core.jobs import Serve
from longboat.serving.local.records import ServiceState, Version, WantedService


def serving_number(wanted: WantedService, state: ServiceState) -> int:
    """The version that serves, or is to: the last good one where the newest has failed."""
    known = {version.number for version in wanted.versions}
    return state.good if wanted.current in state.failed and state.good in known and state.good else wanted.current


def serving_version(wanted: WantedService, state: ServiceState) -> Version:
    """What the next version takes over what nobody says anew: nothing of one that has failed."""
    return wanted.version(serving_number(wanted, state))


def serving_settings(wanted: WantedService, state: ServiceState) -> Serve:
    """How the version that serves is served; how many there are is the service's own."""
    settings = serving_version(wanted, state).serve
    if settings is None or wanted.current not in state.failed:
        return wanted.serve
    return _with_counts(settings, wanted.serve)


def without_failed(wanted: WantedService, state: ServiceState) -> WantedService:
    """For a canary: it goes beside what serves, and a version that has failed is given up. Raises Refused."""
    if wanted.current in state.failed and serving_number(wanted, state) == wanted.current:
        raise Refused(
            f"{wanted.name} serves nothing that a canary could go beside: {state.failed[wanted.current]}",
            hint="leave --canary out",
        )
    return msgspec.structs.replace(wanted, current=serving_number(wanted, state), serve=serving_settings(wanted, state))


def failure_of(wanted: WantedService, number: int, state: ServiceState) -> Refused | None:
    """Why a version never takes requests; None: nothing is known against it."""
    if number not in state.failed:
        return None
    return Refused(
        f"{wanted.version(number).shown} takes no requests: {state.failed[number]}",
        hint=f"longboat serve logs {wanted.name} shows more",
    )


def asked_number(wanted: WantedService) -> int:
    """The version of the last change: a canary is always made after what it goes beside."""
    return wanted.current if wanted.canary is None else wanted.canary


def is_canary_there(wanted: WantedService, state: ServiceState) -> bool:
    """Whether the canary answers, whatever has become of the version before it."""
    return wanted.current in state.failed and any(
        replica.version == wanted.canary and replica.phase == "ready" for replica in state.replicas
    )


def rolled(wanted: WantedService, number: int, serve: Serve, weight: int | None) -> WantedService:
    """A new version takes over, or is a canary; what replicas are asked there says nothing of the others."""
    if weight is not None:
        counts = _with_counts(wanted.serve, serve)
        return msgspec.structs.replace(wanted, serve=counts, canary=number, weight=weight)
    return msgspec.structs.replace(wanted, serve=serve, current=number, canary=None, weight=0)


def promoted(wanted: WantedService) -> WantedService:
    assert wanted.canary is not None
    serve = _with_counts(wanted.settings_of(wanted.canary), wanted.serve)
    return rolled(wanted, wanted.canary, serve, None)


def _with_counts(settings: Serve, counts: Serve) -> Serve:
    """How many replicas there are is the service's own, whichever version it serves."""
    return msgspec.structs.replace(settings, replicas=counts.replicas, max_replicas=counts.max_replicas)
