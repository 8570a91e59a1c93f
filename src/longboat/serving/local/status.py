"""The status of a service, from what is wanted and what its supervisor wrote. Pure."""

from __future__ import annotations

import msgspec

from longboat.serving.local.records import ServiceState, WantedService
from longboat.serving.local.rollout import serving_version
from longboat.serving.service_status import ServiceStatus


def status_of(wanted: WantedService, state: ServiceState, *, is_stopping: bool) -> ServiceStatus:
    """What the files say. Pure."""
    version = serving_version(wanted, state)
    replicas = [replica for replica in state.replicas if replica.phase != "ended"]
    ready = [replica for replica in replicas if replica.phase == "ready" and replica.version != wanted.canary]
    desired = max(state.desired, wanted.serve.replicas)
    canary = None if wanted.canary is None else wanted.version(wanted.canary)
    phase, reason = _phase(wanted, state, is_stopping=is_stopping)
    if not reason and wanted.serve.follow and state.follow_problem:
        reason = f"cannot follow: {state.follow_problem}"
    host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    return ServiceStatus(
        name=wanted.name,
        url=f"http://{'127.0.0.1' if host == '0.0.0.0' else '[::1]' if host == '[::]' else host}:{wanted.port}",
        engine="local",
        run=version.run,
        step=version.step,
        version=version.number,
        replicas=desired,
        ready=len(ready),
        phase=phase,
        reason=reason,
        created=wanted.created,
        canary=None if canary is None else canary.shown,
        weight=wanted.weight,
        follow=wanted.serve.follow,
        in_flight=sum(replica.in_flight for replica in replicas),
        answered=state.answered,
        lost=state.lost,
        user=wanted.user,
        members=tuple(msgspec.to_builtins(replica) for replica in replicas),
    )


def unattended(status: ServiceStatus, why: str, *, is_final: bool) -> ServiceStatus:
    """The same where nobody passes requests on: its replicas are as they were when somebody did."""
    phase = "failed" if is_final else "degraded"
    return msgspec.structs.replace(status, phase=phase, reason=f"its supervisor was killed, and {why}")


def _phase(wanted: WantedService, state: ServiceState, *, is_stopping: bool) -> tuple[str, str]:
    if is_stopping:
        return "stopping", ""
    desired = max(state.desired, wanted.serve.replicas)
    current = [replica for replica in state.replicas if replica.version == wanted.current]
    others = [replica for replica in state.replicas if replica.version not in (wanted.current, wanted.canary)]
    ready = sum(replica.phase == "ready" for replica in current)
    starting = next((replica.reason for replica in current if replica.phase == "starting" and replica.reason), "")
    if wanted.current in state.failed:
        is_serving = any(replica.phase == "ready" for replica in others)
        reason = f"{wanted.version(wanted.current).shown} takes no requests: {state.failed[wanted.current]}"
        return ("degraded" if is_serving else "failed"), reason
    canary_bad = state.failed.get(wanted.canary) if wanted.canary is not None else None
    if canary_bad:
        return "degraded", f"the canary takes no requests: {canary_bad}"
    canaries = [replica for replica in state.replicas if replica.version == wanted.canary]
    if ready >= desired and not others and (wanted.canary is None or any(r.phase == "ready" for r in canaries)):
        return "ready", ""
    if others or wanted.canary is not None and ready >= desired:
        return "updating", starting
    return ("starting" if not ready else "degraded"), starting or state.problem
