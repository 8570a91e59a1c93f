"""Short ways to make the values these tests are about."""

from __future__ import annotations

from longboat.core.jobs import Gpus, Job, Resources, Role
from longboat.core.runs import RankReport
from longboat.engines.local.queue.admission import Ticket
from longboat.engines.local.queue.machine import Gpu, LocalMachine
from longboat.engines.local.queue.requests import RequestedResources
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd, NodeOutcome

GiB = 1 << 30


def job(**changes: object) -> Job:
    roles = changes.pop("roles", None) or (role("worker"),)
    return Job(name="job", roles=roles, ends=("worker",), **changes)  # type: ignore[arg-type]


def role(name: str = "worker", *, nodes: int = 1, gpus: Gpus | int = 0, **sizes: object) -> Role:
    wanted = Gpus(count=gpus) if isinstance(gpus, int) else gpus
    return Role(name=name, run="true", nodes=nodes, resources=Resources(gpus=wanted, **sizes))  # type: ignore[arg-type]


def machine(*gpus: Gpu, cpus: float = 8, memory: int = 16 * GiB) -> LocalMachine:
    return LocalMachine(cpus=cpus, memory=memory, shm=GiB, disk=100 * GiB, gpus=gpus)


def gpu(id: str, index: int = 0, *, type: str | None = None, memory: int | None = None) -> Gpu:
    return Gpu(id=id, index=index, type=type, memory=memory)


def ask(*gpus: int | Gpus, cpus: float = 0.0, memory: int = 0) -> RequestedResources:
    wanted = tuple(Gpus(count=each) if isinstance(each, int) else each for each in gpus)
    return RequestedResources(gpus=wanted, cpus=cpus, memory=memory)


def ticket(run: str, number: int, request: RequestedResources, *, holds: bool = False, priority: int = 0) -> Ticket:
    return Ticket(run=run, number=number, request=request, holds=holds, priority=priority)


def report(rank: int, exit_code: int, *, at: float = 0.0, by: str | None = None, **more: object) -> RankReport:
    node = str(more.pop("node", "worker-0"))
    ended_ns = 10_000_000_000 + int(at * 1e9)
    return RankReport(rank=rank, node=node, exit_code=exit_code, ended_ns=ended_ns, ended_by=by, **more)  # type: ignore[arg-type]


def ending(*reports: RankReport, **more: object) -> AttemptEnd:
    """One node `worker-0` that decides, unless said otherwise."""
    fields: dict[str, object] = {
        "outcomes": {"worker-0": outcome(0)},
        "nodes": ["worker-0"],
        "deciding": ["worker-0"],
        **more,
    }
    return AttemptEnd(reports=reports, **fields)  # type: ignore[arg-type]


def outcome(exit_code: int, **more: object) -> NodeOutcome:
    return NodeOutcome(exit_code=exit_code, **more)  # type: ignore[arg-type]
