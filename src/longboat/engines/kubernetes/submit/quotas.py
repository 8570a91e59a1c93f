"""ResourceQuota and LimitRange of the namespace: do they let the pods of a job in, now or ever? Pure.

Only what is certain is refused: more than a quota will ever allow. What exceeds it only for now waits, and is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longboat.core.jobs import Job, Role
from longboat.core.resources import format_quantity
from longboat.engines.kubernetes.submit.capacity import needs_of
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.surroundings import Limit, Quota
from longboat.engines.refusals import Problem
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import CPU, DISK, MEMORY, PODS, amount, show

_SKIPPED = ("Terminating", "PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass")
_FIELDS = {CPU: "cpus", MEMORY: "memory", DISK: "disk"}


def quota_problems(job: Job, capabilities: ClusterFacts, pods: Sequence[Pod]) -> tuple[list[Problem], list[str]]:
    """Problems that a quota never allows, and notices about what it does not allow now. `pods`: those of the job."""
    needs = {pod.name.rpartition("-")[0]: dict(pod.shape.requests) for pod in pods}
    problems: list[Problem] = []
    notices: list[str] = []
    for quota in capabilities.quotas or ():
        if any(scope in _SKIPPED for scope in quota.scopes):
            continue
        roles = [role for role in job.roles if _is_in_scope(role, quota)]
        for key, hard in quota.hard.items():
            resource = resource_of(key)
            if resource is None or not roles:
                continue
            each = {role.name: _asked(needs[role.name], key, resource, capabilities) for role in roles}
            problem, notice = _quota_problem(quota, key, hard, roles, resource, each)
            problems += [problem] if problem else []
            notices += [notice] if notice else []
    return problems, notices


def _is_in_scope(role: Role, quota: Quota) -> bool:
    wanted = role.resources
    is_best_effort = not (wanted.cpus or wanted.memory)
    if "BestEffort" in quota.scopes:
        return is_best_effort
    return not ("NotBestEffort" in quota.scopes and is_best_effort)


def resource_of(key: str) -> str | None:
    """The resource that a quota's key counts for our pods; None for one that no pod of ours is counted in."""
    if key in (PODS, "count/pods"):
        return PODS
    plain = key.removeprefix("requests.").removeprefix("limits.")
    if plain in _FIELDS:
        return plain
    return plain if key.startswith("requests.") and "/" in plain else None


def _quota_problem(
    quota: Quota, key: str, hard: str, roles: list[Role], resource: str, each: dict[str, int | None]
) -> tuple[Problem | None, str | None]:
    unstated = [role.name for role in roles if each[role.name] is None]
    if unstated:
        return _unstated(quota, key, resource, unstated[0]), None
    wanted = sum(role.pods * (each[role.name] or 0) for role in roles)
    most = amount(resource, hard)
    used = amount(resource, quota.used.get(key, "0"))
    if wanted > most:
        reason = f"quota {quota.name} allows {show(resource, most)} ({key}) and it asks for {show(resource, wanted)}"
        return (reason, _nearest(roles, each, resource, most)), None
    if wanted > most - used:
        left = show(resource, max(0, most - used))
        return None, (
            f"quota {quota.name} has {left} left ({key}: {quota.used.get(key)} of {hard} used) and the run asks for "
            f"{show(resource, wanted)}: it waits until others end"
        )
    return None, None


def _asked(needs: Mapping[str, int], key: str, resource: str, capabilities: ClusterFacts) -> int | None:
    """Amount that one pod counts against the quota; None: it must be stated, and is not."""
    if resource == PODS:
        return 1
    if resource not in _FIELDS:
        return needs.get(resource, 0)
    if key == "limits.cpu":
        # No CPU limit is set: a limit would only slow a training down.
        return _default(capabilities, CPU)
    return needs.get(resource, _default(capabilities, resource))


def _default(capabilities: ClusterFacts, resource: str) -> int | None:
    """The default of a LimitRange."""
    for limit in capabilities.limits or ():
        for values in (limit.default, limit.max):
            if limit.type == "Container" and resource in values:
                return amount(resource, values[resource])
    return None


def _unstated(quota: Quota, key: str, resource: str, role: str) -> Problem:
    if key == "limits.cpu":
        reason = f"quota {quota.name} lets only pods in that have a CPU limit ({key}), and Longboat sets none"
        return reason, "add a LimitRange with a default CPU limit to the namespace"
    field = _FIELDS[resource]
    return (
        f"quota {quota.name} lets only pods in that state their {resource} ({key}), and role {role} states none",
        f"state it: `{field}: {'1' if resource == CPU else '1Gi'}`",
    )


def _nearest(roles: list[Role], each: dict[str, int | None], resource: str, most: int) -> str:
    if len(roles) > 1:
        return f"nearest that fits: at most {show(resource, most)} over all roles"
    role = roles[0]
    per_node = each[role.name] or 0
    if per_node and per_node <= most:
        return f"nearest that fits: `nodes: {most // per_node}`"
    if resource == CPU:
        return f"nearest that fits: `nodes: 1` with `cpus: {most / 1000:g}`"
    if resource in _FIELDS:
        return f"nearest that fits: `nodes: 1` with `{_FIELDS[resource]}: {most >> 20}Mi`"
    return f"nearest that fits: `gpus: {most}`" if resource != PODS else "ask for more quota"


def limit_problems(job: Job, capabilities: ClusterFacts, pods: Sequence[Pod]) -> list[Problem]:
    """Problems with LimitRanges of the namespace: of the ranks' container, or of whole pods."""
    whole = {pod.name.rpartition("-")[0]: dict(pod.shape.requests) for pod in pods}
    problems: list[Problem] = []
    for limit in capabilities.limits or ():
        if limit.type not in ("Container", "Pod"):
            continue
        for role in job.roles:
            own = needs_of(role, capabilities.gpu_resource(role.resources.gpus))
            problems += _limit(limit, role, whole[role.name] if limit.type == "Pod" else own)
    return problems


def _limit(limit: Limit, role: Role, needs: Mapping[str, int]) -> list[Problem]:
    problems: list[Problem] = []
    kind = limit.type.lower()
    for resource, count in needs.items():
        field = _FIELDS.get(resource, "gpus")
        asks = f"and role {role.name} asks for {show(resource, count)}"
        most = amount(resource, limit.max[resource]) if resource in limit.max else None
        least = amount(resource, limit.min[resource]) if resource in limit.min else None
        if most is not None and count > most:
            reason = f"LimitRange {limit.name} allows a {kind} at most {show(resource, most)} {asks}"
            problems.append((reason, f"nearest that fits: `{field}: {_text(resource, most)}`"))
        if least is not None and count < least:
            reason = f"LimitRange {limit.name} wants a {kind} to ask for at least {show(resource, least)} {asks}"
            problems.append((reason, f"nearest that fits: `{field}: {_text(resource, least)}`"))
    return problems


def _text(resource: str, count: int) -> str:
    if resource == CPU:
        return f"{count / 1000:g}"
    return format_quantity(count) if resource in (MEMORY, DISK) else str(count)
