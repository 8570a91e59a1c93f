"""Elastic gangs: a job whose number of nodes is a range, and the job at one size of it. Pure.

`Role.nodes` is always the size that is laid out, so that layouts, ports, requests and manifests know one number. A job
as it was submitted has its largest size. Which size a run gets is decided by an engine: its queue, its gate.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longboat.core.jobs import Job, Role
from longboat.core.runs import Attempt
from longboat.core.words import counted

MOST_RESIZES = 1000
"""Attempts of a run that cost no retry, since only the size changed. Others may write what is stored of a run."""

MOST_SIZES = 64
"""Each that is tried costs a search for room."""


def elastic_role(job: Job) -> Role | None:
    """The role whose nodes may be of several numbers; None: the job has one size."""
    return next((role for role in job.roles if is_elastic_role(role)), None)


def is_elastic_role(role: Role) -> bool:
    return role.min_nodes is not None and role.max_nodes is not None and 0 < role.min_nodes < role.max_nodes


def is_elastic(job: Job) -> bool:
    return elastic_role(job) is not None


def sizes(job: Job) -> range:
    """Numbers of nodes that the elastic role may have; of another job the one of its first role."""
    role = elastic_role(job)
    if role is None or role.min_nodes is None or role.max_nodes is None:
        nodes = job.roles[0].nodes if job.roles else 0
        return range(nodes, nodes + 1)
    return range(role.min_nodes, role.max_nodes + 1)


def offered_sizes(job: Job) -> tuple[int, ...]:
    """The sizes that are tried, the smallest first: all of them, or of a long range some, evenly spread."""
    allowed = sizes(job)
    if len(allowed) <= MOST_SIZES:
        return tuple(allowed)
    return tuple(allowed[round(step * (len(allowed) - 1) / (MOST_SIZES - 1))] for step in range(MOST_SIZES))


def size_of(job: Job) -> int:
    """The nodes that its elastic role has as the job stands."""
    role = elastic_role(job) or job.roles[0]
    return role.nodes


def sized(job: Job, nodes: int | None, *, resizes: int = 0, before: int | None = None) -> Job:
    """The job with so many nodes of its elastic role, within its range; None: as many as it may have.

    `resizes`: attempts so far that only changed the size: they are no retries. `before`: nodes of the role in the
    attempt before.
    """
    role = elastic_role(job)
    if role is None:
        return job
    allowed = sizes(job)
    size = allowed[-1] if nodes is None else max(allowed[0], min(nodes, allowed[-1]))
    changed = msgspec.structs.replace(role, nodes=size, nodes_before=before)
    roles = tuple(changed if each is role else each for each in job.roles)
    retries = msgspec.structs.replace(job.retries, resizes=max(0, min(resizes, MOST_RESIZES)))
    return msgspec.structs.replace(job, roles=roles, retries=retries)


def as_submitted(job: Job) -> Job:
    """The job as its submitter wrote it."""
    return sized(job, None)


def at_attempt(job: Job, size: int | None, *, resizes: int, attempts: Sequence[Attempt], attempt: int) -> Job:
    """The job as one attempt of its run has it, by what is stored of the run."""
    if elastic_role(job) is None:
        return job
    earlier = [each.size for each in attempts if each.number < attempt and each.size is not None]
    return sized(job, size, resizes=resizes, before=earlier[-1] if earlier else None)


def ranks_before(job: Job) -> int | None:
    """Ranks of the whole run in the attempt before, where it had another number of them."""
    role = elastic_role(job)
    if role is None or role.nodes_before is None or role.nodes_before == role.nodes:
        return None
    return job.ranks + (role.nodes_before - role.nodes) * role.procs


def planned_nodes(job: Job) -> str:
    """Of a job that has no size yet, for a plan: `2-8 nodes, as many as there is room for`, `4 nodes`."""
    role = elastic_role(job)
    if role is None:
        return counted(job.nodes, "node")
    others = job.nodes - role.nodes
    low, high = (others + bound for bound in (sizes(job)[0], sizes(job)[-1]))
    return f"{low}-{high} nodes, as many as there is room for,"


def planned_role(role: Role) -> str:
    """`2-8 x worker, 1 process each`."""
    nodes = f"{role.min_nodes}-{role.max_nodes}" if is_elastic_role(role) else str(role.nodes)
    return f"{nodes} x {role.name}, {counted(role.procs, 'process')} each"


def size_words(job: Job) -> str:
    """`4 of 2-8 nodes`; empty for a job of one size."""
    role = elastic_role(job)
    return "" if role is None else f"{role.nodes} of {role.min_nodes}-{role.max_nodes} nodes"
