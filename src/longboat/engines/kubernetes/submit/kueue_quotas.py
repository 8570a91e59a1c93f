"""Kueue quotas: could a queue ever admit a job? The quota of its ClusterQueue against the pods of the job. Pure.

Kueue assigns one flavor to the pods of a role (per group of resources), so a role must fit into one flavor, and all
roles into all flavors together. What may be borrowed from a cohort counts as far as it can be known; what cannot be
known (a cohort with quotas or parents of its own) is not held against the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.core.jobs import Job, Value
from longboat.engines.kubernetes.submit.facts.gpu_inventory import is_gpu_resource
from longboat.engines.refusals import Problem
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import PODS, amount, show_asked, show_number

Object = Mapping[str, Any]


class FlavorQuota(Value, frozen=True):
    """The most of each resource that a flavor of a ClusterQueue can ever give; None: not known."""

    name: str
    most: dict[str, int | None] = {}


def flavor_quotas(
    mine: Object, everyone: Iterable[Object], cohorts: Iterable[Object] | None
) -> tuple[FlavorQuota, ...]:
    """Quotas of one ClusterQueue. `everyone`: all ClusterQueues; `cohorts`: all Cohorts, None: may not be listed."""
    cohort = _cohort(mine)
    lenders = [queue for queue in everyone if cohort and _cohort(queue) == cohort and _name(queue) != _name(mine)]
    is_plain = cohorts is not None and cohort not in {_name(queue) for queue in cohorts}
    quotas = []
    for flavor in _flavors(mine):
        most: dict[str, int | None] = {}
        for resource in flavor.get("resources") or ():
            name = str(resource["name"])
            own = amount(name, str(resource.get("nominalQuota") or "0"))
            lent = sum(_lent(lender, str(flavor["name"]), name) for lender in lenders) if is_plain else None
            most[name] = own if not cohort else _with_borrowed(own, resource.get("borrowingLimit"), name, lent)
        quotas.append(FlavorQuota(name=str(flavor["name"]), most=most))
    return tuple(quotas)


def _with_borrowed(own: int, limit: Any, resource: str, lent: int | None) -> int | None:
    most = None if limit is None else amount(resource, str(limit))
    known = [count for count in (most, lent) if count is not None]
    return own + min(known) if known else None


def _lent(queue: Object, flavor: str, resource: str) -> int:
    for flavor_body in _flavors(queue):
        for each in (flavor_body.get("resources") or ()) if flavor_body["name"] == flavor else ():
            if each["name"] == resource:
                lent = each.get("lendingLimit")
                return amount(resource, str(each.get("nominalQuota") or "0" if lent is None else lent))
    return 0


def _flavors(queue: Object) -> list[Object]:
    groups = (queue.get("spec") or {}).get("resourceGroups") or ()
    return [flavor for group in groups for flavor in group.get("flavors") or ()]


def _cohort(queue: Object) -> str:
    spec = queue.get("spec") or {}
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def _name(body: Object) -> str:
    return str(body["metadata"]["name"])


def queue_quota_problems(
    job: Job, pods: Sequence[Pod], queue: str, flavors: tuple[FlavorQuota, ...] | None
) -> list[Problem]:
    """Why the queue can never admit these pods; empty if it could, or if its quota is not known."""
    if flavors is None:
        return []
    quota_problems: list[Problem] = []
    each = {role.name: _asked(role.name, pods) for role in job.roles}
    for resource in sorted({name for asked in each.values() for name in asked}):
        capacities = [flavor.most[resource] for flavor in flavors if resource in flavor.most]
        limits = [count for count in capacities if count is not None]
        if not capacities or len(limits) < len(capacities):
            continue  # not covered by quota, or not known
        quota_problems += _problem(job, each, resource, (max(limits), sum(limits)), queue)
    return quota_problems


def _asked(role: str, pods: Sequence[Pod]) -> dict[str, int]:
    first = next(pod for pod in pods if pod.name == f"{role}-0")
    return {PODS: 1, **dict(first.shape.requests)}


def _problem(
    job: Job, each: Mapping[str, Mapping[str, int]], resource: str, limits: tuple[int, int], queue: str
) -> list[Problem]:
    largest, all_flavors = limits
    total = sum(role.pods * each[role.name].get(resource, 0) for role in job.roles)
    where = f"queue {queue} can never give more than"
    for role in job.roles:
        per_node = each[role.name].get(resource, 0)
        if role.pods * per_node > largest:
            given = f"{where} {_shown(resource, largest)}"
            reason = f"{given} and role {role.name} asks for {_shown(resource, role.pods * per_node)}"
            return [(reason, _nearest(per_node, resource, largest))]
    if total > all_flavors:
        reason = f"{where} {_shown(resource, all_flavors)} and the job asks for {_shown(resource, total)}"
        return [(reason, f"nearest that fits: at most {_shown(resource, all_flavors)} over all roles")]
    return []


def _nearest(each: int, resource: str, most: int) -> str:
    if each and each <= most:
        return f"nearest that fits: `nodes: {most // each}`, or another queue"
    size = f"`gpus: {most}`" if is_gpu_resource(resource) else _shown(resource, most)
    return f"nearest that fits: `nodes: 1` with {size}, or another queue"


def _shown(resource: str, count: int) -> str:
    return show_asked(resource, count) if count else f"0 {resource}" if resource != PODS else show_number(resource, 0)
