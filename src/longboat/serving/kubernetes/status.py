"""Services as their Deployments tell them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.core.guards.decoding import decode
from longboat.core.guards.formats import FORMAT, NewerFormat, is_newer
from longboat.engines.kubernetes.observe.termination import container_of
from longboat.engines.kubernetes.record_store import has_wild_number
from longboat.serving.kubernetes.manifests import RECORD, SERVICE_PORT, VERSION, ServingRecord
from longboat.serving.service_status import ServiceStatus

Object = Mapping[str, Any]

UNFINISHED = "it was not completed: serve it again, or stop it"
GOLDEN_FAILED = re.compile(r"golden case \d+ of \d+ \(POST |golden\.json (?:is|cannot) ")
"""How the startup probe begins to say that the answers, or the cases, are wrong (`probe`, `golden`)."""


def record_of(body: Object) -> ServingRecord:
    """Raises EngineError for an annotation that somebody else has changed."""
    text = ""
    try:
        text = body["metadata"]["annotations"][RECORD]
        record = decode(text.encode(), ServingRecord)
    except (msgspec.MsgspecError, KeyError, RecursionError, AttributeError) as error:
        if is_newer(text):
            raise NewerFormat(f"the service {body['metadata']['name']}") from None
        raise EngineError(f"the annotation {RECORD} of {body['metadata']['name']} is damaged: {error}") from None
    if record.format > FORMAT:
        raise NewerFormat(f"the service {body['metadata']['name']}")
    if has_wild_number(text):
        raise EngineError(
            f"the annotation {RECORD} of {body['metadata']['name']} is damaged: numbers of 10^16 and more"
        )
    return record


def owners_of(body: Object) -> Sequence[Mapping[str, Any]]:
    return body["metadata"].get("ownerReferences") or ()


def version_of(body: Object) -> int | None:
    """The version that an object is of; labels may say anything."""
    number = str((body["metadata"].get("labels") or {}).get(VERSION))
    return int(number) if re.fullmatch(r"[0-9]{1,9}", number) else None


def is_older(body: Object, version: int) -> bool:
    own = version_of(body)
    return own is not None and own < version


def wanted_replicas(body: Object) -> int:
    return int(body["spec"].get("replicas", 1))


def ready_replicas(body: Object) -> int:
    return int((body.get("status") or {}).get("readyReplicas", 0))


def phase_of(body: Object) -> str:
    """Where a Deployment stands."""
    if body["metadata"].get("deletionTimestamp"):
        return "stopping"
    status, wanted = body.get("status") or {}, wanted_replicas(body)
    is_seen = status.get("observedGeneration", 0) >= body["metadata"].get("generation", 0)
    updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    if is_seen and wanted and updated == ready == status.get("replicas", 0) == wanted:
        return "ready"
    if ready and (not is_seen or updated < status.get("replicas", 0)):
        return "updating"
    return "degraded" if ready else "starting"


def failed_starts(body: Object, pods: Sequence[Object]) -> int:
    """Starts of a replica that has never been ready; 0 once all replicas of the version were."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    if any(each.get("reason") == "NewReplicaSetAvailable" for each in conditions):
        return 0
    # Of its own container: one that a mesh puts beside it may begin a few times until it is reached.
    counts = [int((container_of(pod) or {}).get("restartCount") or 0) for pod in pods if not takes_requests(pod)]
    return max(counts, default=0)


def promoted_record(stable: ServingRecord, canary: ServingRecord) -> ServingRecord:
    """What is asked of replicas comes with the canary; how many there are, and how they are reached, stays."""
    kept = {name: getattr(stable.serve, name) for name in ("replicas", "max_replicas", "port", "ingress")}
    return msgspec.structs.replace(canary, serve=msgspec.structs.replace(canary.serve, **kept))


def takes_requests(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def status_of(body: Object, canary: Object | None, reason: str, namespace: str) -> ServiceStatus:
    """`reason`: what keeps the newest pods from being ready, of whichever Deployment is not."""
    record, phase = record_of(body), phase_of(body)
    if phase == "ready" and canary is not None and phase_of(canary) != "ready":
        phase = "updating"
    if phase not in ("ready", "stopping") and GOLDEN_FAILED.match(reason):
        phase = "degraded" if ready_replicas(body) else "failed"
    beside = None if canary is None else record_of(canary)
    port = record.serve.port or SERVICE_PORT
    name = body["metadata"]["name"]
    return ServiceStatus(
        name=name,
        url=f"http://{name}.{namespace}.svc:{port}",
        engine="kubernetes",
        run=record.run,
        step=record.step,
        version=record.version,
        replicas=wanted_replicas(body),
        ready=ready_replicas(body),
        phase=phase,
        reason=reason if wanted_replicas(body) else UNFINISHED,
        created=record.created,
        user=record.user,
        follow=record.serve.follow,
        canary=None if beside is None else shown(beside),
        weight=0 if canary is None else share_of(wanted_replicas(canary), wanted_replicas(body)),
    )


def share_of(canary: int, stable: int) -> int:
    """Percent of the requests: each replica gets as many as another."""
    return round(100 * canary / max(1, canary + stable))


def shown(record: ServingRecord) -> str:
    return record.run if record.step is None else f"{record.run}:{record.step}"
