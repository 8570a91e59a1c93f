"""The pods of a run before they exist, as the scheduler would see them: from the templates that are created. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.manifests.workloads import workloads
from longboat.engines.kubernetes.records import Record
from longboat.fitting.model.pods import Claims, Pod, pod_of

Object = dict[str, Any]


def gang_pods(record: Record, attempt: int, claims: Claims) -> tuple[Pod, ...]:
    """The pods of an attempt, named after their nodes."""
    pods: list[Pod] = []
    labels = objects.labels_of(record, attempt)
    templates = _templates(workloads(record, attempt, labels, suspended=True))
    for role, template in zip(record.job.roles, templates):
        metadata = {**template["metadata"], "name": role.name, "namespace": record.namespace}
        pod = pod_of({"metadata": metadata, "spec": template["spec"]}, claims)
        pods += [msgspec.structs.replace(pod, name=f"{role.name}-{index}") for index in range(role.pods)]
    return tuple(pods)


def _templates(bodies: Iterable[Object]) -> list[Object]:
    """Pod templates in the order of the roles."""
    templates = []
    for body in bodies:
        jobs = (
            [replicated["template"] for replicated in body["spec"]["replicatedJobs"]]
            if body["kind"] == "JobSet"
            else [body]
        )
        templates += [job["spec"]["template"] for job in jobs]
    return templates
