"""Resource requests of a job on this machine, and which GPUs satisfy them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from longboat.core.elastic.sizes import offered_sizes, sized
from longboat.core.jobs import Gpus, Job, Value
from longboat.engines.local.queue.machine import Gpu


class RequestedResources(Value, frozen=True):
    """What all nodes of a job take from this machine together."""

    gpus: tuple[Gpus, ...] = ()  # one per node, in layout order
    cpus: float = 0.0
    memory: int = 0

    @property
    def gpu_count(self) -> int:
        return sum(gpus.count for gpus in self.gpus)


def request_of(job: Job) -> RequestedResources:
    """The sum over nodes. What a job does not state is not accounted."""
    return RequestedResources(
        gpus=tuple(role.resources.gpus for role in job.roles for _ in range(role.nodes)),
        cpus=sum((role.resources.cpus or 0.0) * role.nodes for role in job.roles),
        memory=sum((role.resources.memory or 0) * role.nodes for role in job.roles),
    )


def requests_of(job: Job) -> tuple[RequestedResources, ...]:
    """Of every size that the job may have here, the smallest first."""
    return tuple(request_of(sized(job, nodes)) for nodes in local_sizes(job))


def local_sizes(job: Job) -> tuple[int, ...]:
    """A job that asks for nothing that could run out has its largest size."""
    largest = request_of(sized(job, None))
    asks = largest.gpu_count or largest.cpus or largest.memory
    return offered_sizes(job) if asks else offered_sizes(job)[-1:]


def matches(gpu: Gpu, wanted: Gpus) -> bool:
    """Whether one GPU satisfies the type and memory asked for."""
    if wanted.type is not None and (gpu.type is None or wanted.type.lower() not in gpu.type.lower()):
        return False
    return wanted.memory is None or (gpu.memory is not None and gpu.memory >= wanted.memory)


def take_gpus(free: Sequence[Gpu], request: RequestedResources) -> list[tuple[Gpu, ...]] | None:
    """GPUs for every node, or None. The pickiest nodes choose first; each takes the smallest GPU that serves it."""
    left = sorted(free, key=lambda gpu: (gpu.memory or 0, gpu.index))
    taken: dict[int, tuple[Gpu, ...]] = {}
    picky = sorted(
        range(len(request.gpus)), key=lambda i: (request.gpus[i].type is None, -(request.gpus[i].memory or 0), i)
    )
    for node in picky:
        wanted = request.gpus[node]
        fitting = [gpu for gpu in left if matches(gpu, wanted)][: wanted.count]
        if len(fitting) < wanted.count:
            return None
        taken[node] = tuple(fitting)
        left = [gpu for gpu in left if gpu not in fitting]
    return [taken[node] for node in range(len(request.gpus))]
