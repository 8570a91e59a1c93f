"""The pods that a job would have if it were submitted now, and the choices of its record that shape them. Pure.

Preflight and the gate place the same pods with the same rules (`longboat.fitting`): both make them of a record
(`manifests.gang_pods`), with everything that the settings of the context lay over them.
"""

from __future__ import annotations

from typing import Any

from longboat.core.jobs import Job
from longboat.engines.kubernetes.manifests.gang_pods import gang_pods
from longboat.engines.kubernetes.manifests.volumes import run_storage
from longboat.engines.kubernetes.records import Record, Storage, WorkloadKind
from longboat.engines.kubernetes.settings import ClusterSettings, images_of
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.fitting.model.pods import Claims, Pod

Object = dict[str, Any]


def planned_pods(
    job: Job, capabilities: ClusterFacts, settings: ClusterSettings | None = None, claims: Claims | None = None
) -> tuple[Pod, ...]:
    """The pods that a job would have if it were submitted now."""
    chosen = settings or ClusterSettings()
    queue = queue_of(job, chosen, capabilities)
    fields = pod_fields(job, chosen, capabilities, queue=queue, run=job.name, uid="0" * 8)
    record = Record(
        name=job.name, uid="", job=job, namespace=capabilities.namespace, created=0.0, user="", queue=queue, **fields
    )
    return gang_pods(record, 0, claims or {})


def pod_fields(
    job: Job, settings: ClusterSettings, capabilities: ClusterFacts, *, queue: str | None, run: str, uid: str
) -> dict[str, Any]:
    """The fields of a Record that its pods are made from, but for the names of Secrets."""
    storage = run_storage(job, settings.storage, run=run, uid=uid)
    return {
        "workload": workload_kind(job, capabilities, queue=queue, storage=storage),
        "images": images_of(job, settings)[0],
        "gpu_resource": _gpu_resource(job, capabilities),
        "gpu_driver": settings.gpu_driver,
        "gpu_selector": _gpu_selector(job, capabilities),
        "storage": storage,
        "security": "restricted" if capabilities.security == "restricted" else "baseline",
        "topology": settings.topology if queue is not None else {},
        "pull_secrets": settings.pull_secrets,
        "pod": settings.pod,
        "service_account": settings.service_account,
    }


def workload_kind(job: Job, capabilities: ClusterFacts, *, queue: str | None, storage: Storage | None) -> WorkloadKind:
    """A JobSet where it is served, unless plain Jobs keep logs that it would remove.

    When the Job of one role fails, the JobSet controller deletes those of the other roles that have not ended, with
    their pods and logs. Launchers end together then (`manifests.gang_file`), but a pod that is killed waits for nobody.
    A storage has the logs anyway; only a queue needs the JobSet, to admit all roles at once.
    """
    if not capabilities.has_jobset:
        return "job"
    is_exposed = len(job.roles) > 1 and storage is None and queue is None
    is_exposed = is_exposed or (job.spares > 0 and queue is None)  # a spare that has failed does not end the others
    may_use_jobs = not any(permission.need == "job" for permission in capabilities.denied)
    return "job" if is_exposed and may_use_jobs else "jobset"


def workload_notices(job: Job, settings: ClusterSettings, capabilities: ClusterFacts) -> list[str]:
    """Notice that a JobSet of several roles loses logs without a storage."""
    storage = run_storage(job, settings.storage, run=job.name, uid="0" * 8)
    kind = workload_kind(job, capabilities, queue=queue_of(job, settings, capabilities), storage=storage)
    if kind == "job" or len(job.roles) == 1 or storage is not None:
        return []
    return [
        "no storage is set: when a pod of one role is killed, JobSet removes the pods of the other roles with their"
        " logs; `longboat config set kubernetes.storage.claim NAME` keeps them"
    ]


def queue_of(job: Job, settings: ClusterSettings, capabilities: ClusterFacts) -> str | None:
    """Kueue's queue: the job's own; the context's for jobs that ask for something; none without Kueue."""
    if not capabilities.has_kueue:
        return None
    return job.queue or (settings.queue if is_gated(job) else None)


def is_gated(job: Job) -> bool:
    """Whether the run must be let in: it holds something that others may wait for, or only all of it is of use."""
    needs = [role.resources for role in job.roles]
    return job.nodes > 1 or bool(job.after) or any(need.gpus.count or need.cpus or need.memory for need in needs)


def _gpu_resource(job: Job, capabilities: ClusterFacts) -> str | None:
    wanted = next((role.resources.gpus for role in job.roles if role.resources.gpus.count), None)
    return None if wanted is None else capabilities.gpu_resource(wanted)


def _gpu_selector(job: Job, capabilities: ClusterFacts) -> dict[str, dict[str, tuple[str, ...]]]:
    by_role = {role.name: capabilities.gpu_selector(role.resources.gpus) for role in job.roles}
    return {role: labels for role, labels in by_role.items() if labels}
