"""Preparation of a submission: the cluster is observed, the job checked, the code snapshotted. Creates no object."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from longboat.bundles.manifests import CodeSnapshot as Code
from longboat.core.elastic.sizes import sized, sizes
from longboat.core.errors import EngineError, Refused, SecretMissing
from longboat.core.jobs import Job, Value
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.gate.node_usage import bound_claims
from longboat.engines.kubernetes.manifests.volumes import check_volumes, run_storage, storage_notices
from longboat.engines.kubernetes.record_store import find_record, read_record
from longboat.engines.kubernetes.settings import ClusterSettings, images_of
from longboat.engines.kubernetes.status import brief_status
from longboat.engines.kubernetes.submit.code.upload import SHARED, found_secrets, launcher_name
from longboat.engines.kubernetes.submit.facts.cluster_facts import KUEUE_GROUP, ClusterFacts, named_claims
from longboat.engines.kubernetes.submit.facts.gpu_inventory import is_gpu_resource
from longboat.engines.kubernetes.submit.facts.surroundings import NodeUse
from longboat.engines.kubernetes.submit.free_names import taken_names
from longboat.engines.kubernetes.submit.planned_pods import queue_of, workload_notices
from longboat.engines.kubernetes.submit.resume import find_checkpoint
from longboat.engines.lifecycle.predecessors import Predecessor, predecessors_of
from longboat.engines.shared.home import Home
from longboat.engines.shared.secret_urls import redacted_job, secret_urls
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import Kind

Object = dict[str, Any]


class PreparedRun(Value, frozen=True):
    """Everything about a run but its name, known before anything is created."""

    submission: Submission
    job: Job  # as anybody may see it
    capabilities: ClusterFacts
    secrets: dict[str, str]  # variable -> value, signed URLs of `data` among them
    notices: tuple[str, ...]
    code: Code | None = None
    resume_from: str | None = None
    after: tuple[Predecessor, ...] = ()
    queue_priority: str | None = None  # the class of Kueue that stands for the job's priority
    packs: tuple[Object, ...] | None = None  # metadata of the shared Secrets that are there; None: not looked
    taken: frozenset[str] = frozenset()  # names that are not free, as far as we looked


def prepare(client: Client, settings: ClusterSettings, home: Home, submission: Submission) -> PreparedRun:
    """Look and check; raises Refused. Nothing is created in the cluster."""
    from longboat.engines.kubernetes.submit.facts.cluster_facts import observe
    from longboat.engines.shared.code_snapshot import snapshot_of, with_absolute_secrets

    job = with_absolute_secrets(submission)
    with ThreadPoolExecutor(max_workers=4) as pool:  # the cluster, the code and two or three short lists
        seen = pool.submit(observe, client, job, settings)
        code = pool.submit(snapshot_of, home, submission)
        packs = pool.submit(found_secrets, client, *SHARED)
        names_taken = pool.submit(taken_names, client, job.name) if submission.run_id is None else None
        bound = pool.submit(bound_claims, client) if named_claims(job, settings) else None
        # What takes our own time is done while the server takes its.
        from longboat.core.layouts import notices as layout_notices
        from longboat.engines.kubernetes.submit.preflight import check
        from longboat.engines.shared.secrets import unmasked

        launcher_name()
        capabilities = restrict_gpu_resource(seen.result(), settings.gpu_resource)
    notices = [
        *check(sized(job, sizes(job)[0]), capabilities, settings, bound.result() if bound else None),
        *layout_notices(job),
        *storage_notices(job, settings.storage),
        *workload_notices(job, settings, capabilities),
    ]
    check_volumes(job, allow_host_paths=settings.allow_host_paths)
    secrets = {**_secrets(home, job, submission.environment), **secret_urls(job)}
    notices += unmasked(secrets)
    snapshot = code.result()
    storage = run_storage(job, settings.storage, run=job.name, uid="0" * 8)
    priority, priority_notices = _queue_priority(client, settings, job, capabilities)
    notices += [*images_of(job, settings)[1], *_code_notices(snapshot, job), *priority_notices]
    return PreparedRun(
        submission=submission,
        job=redacted_job(job),
        capabilities=capabilities,
        secrets=secrets,
        notices=tuple(notices),
        code=snapshot,
        packs=tuple(packs.result()),
        taken=names_taken.result() if names_taken else frozenset(),
        resume_from=find_checkpoint(client, job.checkpoints.resume, storage),
        after=predecessors_of(job, lambda run: brief_status(*read_record(find_record(client, run)))),
        queue_priority=priority,
    )


def _code_notices(code: Code | None, job: Job) -> list[str]:
    from longboat.engines.shared.code_snapshot import code_notices

    return [] if code is None else [*code.warnings, *code_notices(code, job, is_cluster=True)]


def _queue_priority(
    client: Client, settings: ClusterSettings, job: Job, capabilities: ClusterFacts
) -> tuple[str | None, list[str]]:
    """Kueue knows priorities by the names of classes: the one with the job's number."""
    queue = queue_of(job, settings, capabilities)
    if queue is None or not job.priority:
        return None, []
    versions = capabilities.groups.get(KUEUE_GROUP, ())
    kind = Kind("WorkloadPriorityClass", f"{KUEUE_GROUP}/{versions[0]}", "workloadpriorityclasses", False)
    try:
        classes = client.list(kind).items
    except ApiError:
        classes = []
    named = sorted(str(each["metadata"]["name"]) for each in classes if each.get("value") == job.priority)
    if named:
        return named[0], []
    text = f"priority {job.priority}: no WorkloadPriorityClass has this value, so queue {queue} does not know of it"
    return None, [text]


def _secrets(home: Home, job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    if not job.secrets:
        return {}
    from longboat.engines.shared.secrets import read_secrets

    try:
        return read_secrets(home, job.secrets, environment)
    except SecretMissing:
        raise
    except EngineError as error:
        raise Refused(error.message, hint=error.hint) from error


def restrict_gpu_resource(capabilities: ClusterFacts, resource: str | None) -> ClusterFacts:
    """The facts with only the GPUs of the configured resource."""
    if resource is None or capabilities.nodes is None:
        return capabilities

    def kept(use: NodeUse) -> NodeUse:
        left = tuple(pair for pair in use.node.allocatable if pair[0] == resource or not is_gpu_resource(pair[0]))
        return msgspec.structs.replace(use, node=msgspec.structs.replace(use.node, allocatable=left))

    return msgspec.structs.replace(capabilities, nodes=tuple(kept(use) for use in capabilities.nodes))
