"""The workload of one attempt: a JobSet with a replicated job per role, or an Indexed Job per role. Pure.

An index that failed is not started again and does not end the others: the gang ends itself, and its pods stay with
their logs. With exceptions: a launcher whose pod is taken away, while node 0 restarts the others in place, leaves with
an exit code of its own, and its Job makes another pod for its index. So it does for one that was killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.core.elastic.sizes import is_elastic_role
from longboat.core.jobs import Role
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests.pod_template import pod_template
from longboat.engines.kubernetes.records import Record, replaced_exits

Object = dict[str, Any]

QUEUE = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
MOST_REPLACED = 1000
"""Pods of one index: what Kubernetes counts in 32 bits, a job file may give in more."""


def workloads(record: Record, attempt: int, labels: Mapping[str, str], *, suspended: bool) -> list[Object]:
    """The JobSet, or the Jobs in the order of the roles. Metadata has name and labels."""
    if record.workload == "jobset":
        return [_jobset(record, attempt, labels, suspended)]
    short = names.role_names(record.job, record.name, attempt, "job")
    jobs = []
    for role in record.job.roles:
        of_role = {**labels, names.ROLE: role.name}
        spec = {**_job_spec(record, role, attempt, of_role), "suspend": suspended}
        name = names.job_name(record.name, attempt, short[role.name])
        metadata = {"name": name, "labels": {**of_role, **queue_labels(record)}, **_range(record, role)}
        jobs.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    return jobs


def _range(record: Record, role: Role) -> Object:
    """An annotation with the numbers of nodes that the role may have: an autoscaler cannot read records."""
    if not is_elastic_role(role) or record.job.grow == "never":
        return {}
    return {"annotations": {names.NODES: f"{role.min_nodes}-{role.max_nodes}"}}


def queue_labels(record: Record) -> dict[str, str]:
    if record.queue is None:
        return {}
    priority = {QUEUE_PRIORITY: record.queue_priority} if record.queue_priority else {}
    return {QUEUE: record.queue, **priority}


def _jobset(record: Record, attempt: int, labels: Mapping[str, str], suspended: bool) -> Object:
    name = names.attempt_name(record.name, attempt)
    short = names.role_names(record.job, record.name, attempt, "jobset")
    replicated = []
    for role in record.job.roles:
        of_role = {**labels, names.ROLE: role.name}
        metadata = {"labels": of_role, **_range(record, role)}  # of the Job that the JobSet makes
        template = {"metadata": metadata, "spec": _job_spec(record, role, attempt, of_role)}
        replicated.append({"name": short[role.name], "replicas": 1, "template": template})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {**labels, **queue_labels(record)}},
        "spec": {
            "suspend": suspended,
            "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": replicated,
        },
    }


def _job_spec(record: Record, role: Role, attempt: int, labels: Mapping[str, str]) -> Object:
    return {
        "completionMode": "Indexed",
        "completions": role.nodes,
        "parallelism": role.nodes,
        **_replacement(record),
        "podReplacementPolicy": "Failed",
        "template": pod_template(record, role, attempt, labels=labels),
    }


def _replacement(record: Record) -> Object:
    """Which ended pods get a successor: none, or those whose launchers ask for it or were killed; all others fail
    their index."""
    exits = replaced_exits(record)
    if not exits:
        return {"backoffLimitPerIndex": 0}
    asked = {"containerName": "main", "operator": "In", "values": list(exits)}
    rules: list[Object] = [{"action": "Count", "onExitCodes": asked}]
    rules += [
        {"action": "FailIndex", "onPodConditions": [{"type": "PodScheduled", "status": status}]}
        for status in ("True", "False")
    ]
    most = min(record.job.retries.count, MOST_REPLACED)
    return {"backoffLimitPerIndex": most, "podFailurePolicy": {"rules": rules}}
