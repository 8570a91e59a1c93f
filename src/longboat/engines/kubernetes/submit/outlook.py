"""The outlook of a job in a cluster: what preflight and the gate would say to it now. Reads only.

Preflight knows what can never run; the gate, with all that wait there, whether it would be let in. Where machines can
be added, a run that does not fit now gets new ones. Kueue decides for itself: of a queue only free room is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from longboat.core.elastic.sizes import sized, sizes
from longboat.core.errors import Refused
from longboat.core.jobs import Job
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.gate.decide import GateCandidate, Prospect, foresee
from longboat.engines.kubernetes.gate.node_usage import bound_claims
from longboat.engines.kubernetes.gate.serve import look_around
from longboat.engines.kubernetes.gate.waiting_runs import START_S
from longboat.engines.kubernetes.manifests.volumes import check_volumes
from longboat.engines.kubernetes.settings import ClusterSettings
from longboat.engines.kubernetes.submit.facts.cluster_facts import THREADS, ClusterFacts, named_claims, observe
from longboat.engines.kubernetes.submit.facts.gpu_inventory import is_gpu_resource
from longboat.engines.kubernetes.submit.planned_pods import planned_pods, queue_of
from longboat.engines.kubernetes.submit.preflight import check
from longboat.engines.kubernetes.submit.preparation import restrict_gpu_resource
from longboat.engines.lifecycle.outlook import Outlook
from longboat.engines.shared.code_snapshot import with_absolute_secrets
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod
from longboat.kubeapi.client import Client

BOOT_S = 300.0
"""Until a machine of a cloud is a node whose GPUs can be used: the clouds' GPU images take three to six minutes."""
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ABSENT = "?"
"""Name of the run that is not there yet: no run is called so."""


def outlook_of(client: Client, settings: ClusterSettings, submission: Submission) -> Outlook:
    """Raises Unreachable; a job that can never run here is an answer."""
    job = with_absolute_secrets(submission)
    job = sized(job, sizes(job)[0])  # an elastic one starts as soon as so much fits
    with ThreadPoolExecutor(THREADS, thread_name_prefix="outlook") as threads:
        seen = threads.submit(look_around, client)
        bound = threads.submit(bound_claims, client) if named_claims(job, settings) else None
        facts = restrict_gpu_resource(observe(client, job, settings, threads), settings.gpu_resource)
        claims = bound.result() if bound else None
        others, room = seen.result()
    try:
        check(job, facts, settings, claims)
        check_volumes(job, allow_host_paths=settings.allow_host_paths)
    except Refused as error:
        return Outlook(answer="never", reason=error.message)
    pods = planned_pods(job, facts, settings, claims)
    price = None if settings.gpu_hour is None else settings.gpu_hour * job.gpus
    now = client.now()
    if room is None:
        return Outlook(answer="unknown", reason="nodes may not be listed: what is free is not known", price=price)
    queue = queue_of(job, settings, facts)
    prospect = foresee(_candidate(job, client.namespace, pods, now), [] if queue else others, room, now)
    outlook = judge(prospect, facts, now, queue=queue)
    if price is None and outlook.answer == "buys" and facts.autoscaler is not None and facts.autoscaler.gpu_hour:
        price = facts.autoscaler.gpu_hour * job.gpus
    return msgspec.structs.replace(outlook, price=price, machine_types=machine_types(pods, room.nodes))


def _candidate(job: Job, namespace: str, pods: tuple[Pod, ...], now: float) -> GateCandidate:
    lasts_s = None if job.timeout_s is None else job.timeout_s + START_S
    return GateCandidate(
        run=ABSENT, uid="", created=now, pods=pods, namespace=namespace, priority=job.priority, lasts_s=lasts_s
    )


def machine_types(pods: Sequence[Pod], nodes: Sequence[NodeShape]) -> tuple[str, ...]:
    """Types of the machines with GPUs on which pods that ask for some could be. Pure."""
    fleet = Fleet(nodes, ())
    asking = {pod.shape for pod in pods if any(is_gpu_resource(resource) for resource, _ in pod.shape.requests)}
    able = {name for shape in asking for name in fleet.eligible(shape.placing)}
    types = {
        node.labels.get(INSTANCE_TYPE, "")
        for node in nodes
        if node.name in able and any(is_gpu_resource(resource) and count for resource, count in node.allocatable)
    }
    return tuple(sorted(types - {""}))


def judge(prospect: Prospect, facts: ClusterFacts, now: float, *, queue: str | None) -> Outlook:
    """The outlook of what the gate foresees. Pure."""
    if prospect.starts:
        reason = f"queue {queue} of Kueue decides when" if queue else ""
        return Outlook(answer="now", reason=reason)
    wait_s = None if prospect.start is None else max(0.0, prospect.start - now)
    grows = facts.autoscaler is not None and facts.autoscaler.can_grow is not False
    if not grows:
        return Outlook(answer="waits", reason=prospect.reason, wait_s=wait_s)
    assert facts.autoscaler is not None
    boot_s = facts.autoscaler.boot_s or BOOT_S
    if wait_s is not None and wait_s < boot_s:
        return Outlook(answer="waits", reason=prospect.reason, wait_s=wait_s)
    detail = f" ({facts.autoscaler.detail})" if facts.autoscaler.detail else ""
    reason = f"{prospect.reason}; {facts.autoscaler.name} may add machines{detail}"
    return Outlook(answer="buys", reason=reason, wait_s=boot_s)
