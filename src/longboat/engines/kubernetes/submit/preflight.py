"""Preflight: can this job ever run in this cluster? Pure: a Job and ClusterFacts in, refusal or notices out.

Everything that is wrong is told at once. What is not known (forbidden to read) is not held against the job. Sizes are
in `capacity` and `quotas`; what only the API server can tell is found by creating with `dryRun` afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from longboat.core.elastic.sizes import elastic_role
from longboat.core.errors import Refused
from longboat.core.jobs import Job
from longboat.engines import refusals
from longboat.engines.kubernetes.records import Storage
from longboat.engines.kubernetes.settings import ClusterSettings
from longboat.engines.kubernetes.submit.capacity import capacity_problems
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts, ContextChoices, named_claims
from longboat.engines.kubernetes.submit.facts.gpu_inventory import LEGACY_GPU
from longboat.engines.kubernetes.submit.facts.permissions import Permission, format_permissions, grant
from longboat.engines.kubernetes.submit.facts.surroundings import ClaimView
from longboat.engines.kubernetes.submit.kueue_quotas import queue_quota_problems
from longboat.engines.kubernetes.submit.planned_pods import planned_pods
from longboat.engines.kubernetes.submit.planned_pods import queue_of as planned_queue
from longboat.engines.kubernetes.submit.quotas import limit_problems, quota_problems
from longboat.engines.refusals import Problem
from longboat.fitting.model.pods import Claims

OLDEST = (1, 29)  # of the versions that the tests run on
MANY = "ReadWriteMany"
READ_MANY = "ReadOnlyMany"


def check(
    job: Job, capabilities: ClusterFacts, settings: ClusterSettings | None = None, claims: Claims | None = None
) -> list[str]:
    """Raise Refused with every reason and the nearest that fits, or return notices.

    `claims`: where the volumes of the claims that the job mounts can be reached.
    """
    storage = settings.storage if settings is not None else None
    problems: list[Problem] = []
    for ask in (_namespace_problems, _permission_problems):
        problems += ask(capabilities)
    problems += _queue_problems(queue_of(job, settings), capabilities)
    problems += _chain_problems(job, planned_queue(job, settings or ClusterSettings(), capabilities))
    planned = planned_queue(job, settings or ClusterSettings(), capabilities)
    problems += [*_elastic_problems(job, planned), *_spare_problems(job, planned)]
    problems += _account_problems(capabilities)
    problems += _data_problems(job)
    problems += _security_problems(job, capabilities, storage)
    problems += _driver_problems(job, capabilities, settings)
    problems += _claim_problems(job, capabilities, settings)
    pods = planned_pods(job, capabilities, settings, claims)
    problems += limit_problems(job, capabilities, pods)
    exceeded, notices = quota_problems(job, capabilities, pods)
    problems += exceeded
    name = planned_queue(job, settings or ClusterSettings(), capabilities)
    queue = capabilities.queue(name) if name else None
    problems += queue_quota_problems(job, pods, queue.name, queue.flavors) if queue else []
    sizes = capacity_problems(job, capabilities, pods)
    grows = capabilities.autoscaler is not None and capabilities.autoscaler.can_grow is not False
    if not grows:
        problems += sizes
    if problems:
        raise refusal(capabilities, problems)
    notices += _growing_notices(capabilities, sizes) if grows else []
    return [*notices, *_sleeping_queue(queue_of(job, settings), capabilities), *_notices(job, capabilities)]


def refusal(capabilities: ClusterFacts, problems: list[Problem]) -> Refused:
    return refusals.refusal(f"namespace {capabilities.namespace} of this cluster cannot run this job", problems)


def _namespace_problems(capabilities: ClusterFacts) -> list[Problem]:
    name = capabilities.namespace
    if capabilities.has_namespace is False:
        return [(f"there is no namespace {name}", f"kubectl create namespace {name}, or name another with --namespace")]
    if capabilities.is_terminating:
        return [(f"namespace {name} is being deleted", "wait until it is gone, or name another with --namespace")]
    return []


def _permission_problems(capabilities: ClusterFacts) -> list[Problem]:
    denied = needed_denials(capabilities)
    if not denied or capabilities.has_namespace is False:
        return []
    return [
        (f"you may not: {format_permissions(denied)}", f"ask for {grant(denied, namespace=capabilities.namespace)}")
    ]


def needed_denials(capabilities: ClusterFacts) -> list[Permission]:
    """Denied permissions without which nothing runs. Where JobSet is served, creating Jobs is not needed."""
    needs = ("always", "jobset") if capabilities.has_jobset else ("always", "job")
    return [permission for permission in capabilities.denied if permission.need in needs]


def queue_of(job: Job, settings: ContextChoices | None) -> str | None:
    return job.queue or (settings.queue if settings is not None else None)


def _chain_problems(job: Job, queue: str | None) -> list[Problem]:
    """Kueue starts what it admits; nobody could hold it back after that."""
    if not job.after or queue is None:
        return []
    return [
        (f"`after` cannot be kept in queue {queue}: Kueue admits its runs by itself", "drop one: `--set queue=null`")
    ]


def _elastic_problems(job: Job, queue: str | None) -> list[Problem]:
    """Kueue admits what a workload asks for, and no other size of it."""
    role = elastic_role(job)
    if role is None or queue is None:
        return []
    nodes = f"`nodes: {role.max_nodes}`, or drop the queue: `--set queue=null`"
    return [(f"`nodes` is a range, and queue {queue} of Kueue admits one size", nodes)]


def _spare_problems(job: Job, queue: str | None) -> list[Problem]:
    """Kueue counts pods that have to end for its quota; who takes whose place is not known to it."""
    if not job.spares or queue is None:
        return []
    hint = "drop `spares`, or the queue: `--set queue=null`"
    return [(f"`spares` are not kept in queue {queue} of Kueue, which would count them as work", hint)]


def _queue_problems(wanted: str | None, capabilities: ClusterFacts) -> list[Problem]:
    if wanted is None:
        return []
    if not capabilities.has_kueue:
        return [(f"`queue: {wanted}` needs Kueue, which this cluster does not have", "drop it: `--set queue=null`")]
    if capabilities.queues is None or capabilities.queue(wanted) is not None:
        return []
    names = ", ".join(queue.name for queue in capabilities.queues)
    hint = f"queues here: {names}" if names else "this namespace has no queue; drop it: `--set queue=null`"
    return [(f"there is no queue {wanted} in namespace {capabilities.namespace}", hint)]


def _account_problems(capabilities: ClusterFacts) -> list[Problem]:
    if capabilities.has_service_account is not False or capabilities.has_namespace is False:
        return []
    name, namespace = capabilities.service_account, capabilities.namespace
    reason = f"there is no service account {name} in namespace {namespace}, under which the pods would run"
    return [(reason, f"kubectl create serviceaccount {name} --namespace {namespace}")]


def _data_problems(job: Job) -> list[Problem]:
    """Data is fetched in the pods: what only the submitter's machine has cannot be had there."""
    problems: list[Problem] = []
    mounts = [volume.target.rstrip("/") + "/" for volume in job.volumes if volume.target.startswith("/")]
    for item in job.data:
        parts = urlsplit(item.url)
        if parts.scheme == "file" and not any(parts.path.startswith(mount) for mount in mounts):
            reason = f"`data`: file://{parts.path} is a file of the machine you submit from, which no pod can see"
            problems.append((reason, "use an https:// address, or a file of a volume that the job mounts"))
            continue
        problems += refusals.import_problems(item)
    return problems


def _security_problems(job: Job, capabilities: ClusterFacts, storage: Storage | None) -> list[Problem]:
    """Parts of the job that the namespace's Pod Security level rejects."""
    level = capabilities.security
    if level == "privileged":
        return []
    problems: list[Problem] = []
    places = [(f"volumes.{volume.target}", volume.path, volume.nfs) for volume in job.volumes]
    if storage is not None:
        places.append(("the storage of this context", storage.path, storage.nfs))
    for place, path, nfs in places:
        kind = "folders of its machines" if path else "NFS" if nfs and level == "restricted" else None
        if kind:
            reason = f"{place}: the namespace's Pod Security level {level} allows no {kind} as volumes"
            problems.append((reason, "use a claim: `{claim: NAME}`"))
    return problems


def _driver_problems(job: Job, capabilities: ClusterFacts, settings: ClusterSettings | None) -> list[Problem]:
    """The driver of the nodes is mounted, which only the privileged level lets in."""
    if not job.gpus or settings is None or settings.gpu_driver is None or capabilities.security == "privileged":
        return []
    reason = (
        f"`gpu: {{mode: hostpath}}` of this context mounts {settings.gpu_driver.folder} of the nodes,"
        f" which the namespace's Pod Security level {capabilities.security} does not allow"
    )
    return [(reason, "use a namespace of level privileged, or a device plugin that brings the driver")]


def _legacy_gpus(job: Job, capabilities: ClusterFacts) -> list[str]:
    asked = {capabilities.gpu_resource(role.resources.gpus) for role in job.roles}
    if LEGACY_GPU not in asked:
        return []
    return [f"GPUs are asked for as {LEGACY_GPU}: nodes here offer them by that old name only"]


def _claim_problems(job: Job, capabilities: ClusterFacts, settings: ContextChoices | None) -> list[Problem]:
    if capabilities.claims is None:
        return []
    kept = settings.storage.claim if settings is not None and settings.storage is not None else None
    made = {volume.claim for volume in job.volumes if volume.claim and volume.size is not None}
    problems: list[Problem] = []
    for name in named_claims(job, settings):
        claim = capabilities.claims.get(name)
        if claim is None and name in made:
            continue  # it is made with the run
        if claim is None:
            there = ", ".join(sorted(capabilities.claims)) or "none"
            reason = f"there is no claim {name} in namespace {capabilities.namespace}"
            problems.append((reason, f"`longboat volume create {name}`; claims here: {there}"))
            continue
        writes = name == kept or any(volume.claim == name and not volume.read_only for volume in job.volumes)
        problems += _access_problems(job, claim, capabilities, writes=writes)
        problems += _binding_problems(claim, capabilities)
    return problems


def _access_problems(job: Job, claim: ClaimView, capabilities: ClusterFacts, *, writes: bool) -> list[Problem]:
    modes = set(claim.access_modes)
    if not modes:
        return []
    if modes == {READ_MANY} and writes:
        reason = f"claim {claim.name} can only be read ({READ_MANY})"
        return [(reason, f"mount it with `read_only: true`, or use a claim with {MANY}")]
    if MANY in modes or (READ_MANY in modes and not writes) or job.nodes == 1:
        return []
    hint = f"nearest that fits: `nodes: 1`, or a claim with access mode {MANY}"
    if modes == {"ReadWriteOncePod"}:
        reason = f"claim {claim.name} can be used by one pod only (ReadWriteOncePod), and the job has {job.nodes} nodes"
        return [(reason, hint)]
    if capabilities.nodes is not None and len(capabilities.nodes) == 1:
        return []  # several pods of one machine may share it
    reason = f"claim {claim.name} can be mounted on one machine only (ReadWriteOnce), and the job has {job.nodes} nodes"
    return [(reason, hint)]


def _binding_problems(claim: ClaimView, capabilities: ClusterFacts) -> list[Problem]:
    if claim.phase == "Lost":
        return [(f"claim {claim.name} has lost its volume", "make it anew")]
    classes = capabilities.storage_classes
    if claim.phase != "Pending" or classes is None:
        return []
    names = [storage_class.name for storage_class in classes]
    here = f"storage classes here: {', '.join(names) or 'none'}"
    if claim.storage_class is None and not any(storage_class.is_default for storage_class in classes):
        return [(f"claim {claim.name} is not bound: it names no storage class and there is no default one", here)]
    if claim.storage_class and claim.storage_class not in names:
        return [(f"claim {claim.name} is not bound: there is no storage class {claim.storage_class}", here)]
    return []


def _growing_notices(capabilities: ClusterFacts, sizes: list[Problem]) -> list[str]:
    if not sizes or capabilities.autoscaler is None:
        return []
    who = capabilities.autoscaler
    detail = f" ({who.detail})" if who.detail else ""
    sizes_told = "; ".join(reason for reason, _ in sizes)
    return [f"with the nodes of now it does not fit: {sizes_told}; it waits for nodes that {who.name} may add{detail}"]


def _notices(job: Job, capabilities: ClusterFacts) -> list[str]:
    notices = [notice for ask in _NOTICES for notice in ask(job, capabilities)]
    return list(dict.fromkeys(notices))


def _unknown_nodes(job: Job, capabilities: ClusterFacts) -> list[str]:
    if capabilities.nodes is not None:
        return []
    return ["nodes may not be listed here: whether the job fits is not known before it is tried"]


def version_of(text: str) -> tuple[int, int] | None:
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _old_version(job: Job, capabilities: ClusterFacts) -> list[str]:
    version = version_of(capabilities.version)
    if version is None or version >= OLDEST:
        return []
    return [f"Kubernetes {capabilities.version} is older than {OLDEST[0]}.{OLDEST[1]}, with which Longboat is tested"]


def _sleeping_queue(wanted: str | None, capabilities: ClusterFacts) -> list[str]:
    queue = capabilities.queue(wanted) if wanted is not None else None
    if queue is None or queue.is_active is not False:
        return []
    return [f"queue {queue.name} lets nothing in now: {queue.message or 'it is not active'}"]


def _optional_permissions(job: Job, capabilities: ClusterFacts) -> list[str]:
    lacking: list[Permission] = [
        permission for permission in capabilities.denied if permission.need in ("optional", "helper", "gate", "kueue")
    ]
    if not lacking:
        return []
    return [f"you may not: {format_permissions(lacking)}"]


def _unbound_claims(job: Job, capabilities: ClusterFacts) -> list[str]:
    names = named_claims(job, None)
    waiting = [claim.name for claim in (capabilities.claims or {}).values() if claim.phase == "Pending"]
    return [f"claim {name} is not bound yet: the run waits for it" for name in waiting if name in names]


def _lost_secrets(job: Job, capabilities: ClusterFacts) -> list[str]:
    return [
        f"image pull secret {name} does not exist: private images cannot be pulled"
        for name in capabilities.lost_secrets
    ]


_NOTICES: tuple[Callable[[Job, ClusterFacts], list[str]], ...] = (
    _unknown_nodes,
    _old_version,
    _legacy_gpus,
    _optional_permissions,
    _unbound_claims,
    _lost_secrets,
)
