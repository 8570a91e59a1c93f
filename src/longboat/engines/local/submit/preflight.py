"""Preflight: whether a job can ever run on this machine. Pure: a Job and a Machine in, refusal or notices out."""

from __future__ import annotations

from collections.abc import Sequence

from longboat.core.elastic.sizes import sized, sizes
from longboat.core.jobs import Job, Role
from longboat.core.resources import format_duration, show_quantity
from longboat.core.words import counted
from longboat.engines.local.containers.choice import GENERATE, ContainerChoice, device_of
from longboat.engines.local.queue.machine import LocalMachine
from longboat.engines.local.queue.requests import local_sizes, matches, request_of, take_gpus
from longboat.engines.refusals import Problem, each_words, gpu_words, import_problems, refusal

CROWD = 8
"""Ranks for each CPU that are no reason for a word: a rehearsal of a small cluster."""
START_S = 0.03
"""CPU time to start a rank or a launcher, as measured: 9,000 of them on 2 CPUs take 2 minutes."""
SLOW_START_S = 10.0
"""A start that takes less needs no explanation."""


def check(
    job: Job,
    machine: LocalMachine,
    others: Sequence[Problem] = (),
    containers: ContainerChoice = ContainerChoice(),  # noqa: B008
) -> list[str]:
    """Raise Refused with every reason and the nearest that fits, or return notices. `others`: reasons known before."""
    least = sized(job, sizes(job)[0])
    problems = [
        *others,
        *(problem for item in job.data for problem in import_problems(item)),
        *_gpu_problems(least, machine),
        *_device_problems(least, machine, containers),
        *_size_problems(least, machine),
    ]
    if problems:
        raise refusal("this machine can never run this job", problems)
    return [*_elastic_notices(job, machine), *_image_notices(job, containers), *_crowd_notices(job, machine)]


def _elastic_notices(job: Job, machine: LocalMachine) -> list[str]:
    """Of an elastic job, how much of it this machine can ever run."""
    fitting = [size for size in local_sizes(job) if not _never_fits(sized(job, size), machine)]
    most = max(fitting, default=sizes(job)[0])
    return [f"at most {most} of {sizes(job)[-1]} nodes fit on this machine"] if most < sizes(job)[-1] else []


def _never_fits(job: Job, machine: LocalMachine) -> bool:
    return bool(_gpu_problems(job, machine) or _size_problems(job, machine))


def _gpu_problems(job: Job, machine: LocalMachine) -> list[Problem]:
    asking = [role for role in job.roles if role.resources.gpus.count]
    if not asking:
        return []
    for role in asking:
        wanted = role.resources.gpus
        fitting = [gpu for gpu in machine.gpus if matches(gpu, wanted)]
        if machine.gpus and not fitting:
            kinds = ", ".join(sorted({gpu.type or "unknown type" for gpu in machine.gpus}))
            return [
                (
                    f"role {role.name} asks for {gpu_words(wanted)} and the GPUs here are: {kinds}",
                    "drop the GPU's type or memory",
                )
            ]
    total, have = job.gpus, len(machine.gpus)
    if total <= have:
        return _kind_problems(asking, machine) if take_gpus(machine.gpus, request_of(job)) is None else []
    shape = " + ".join(f"{role.nodes} x {each_words(role.resources.gpus)}" for role in asking)
    return [(f"it asks for {counted(total, 'GPU')} ({shape}) and there are {have}", _nearest_gpus(asking, have))]


def _device_problems(job: Job, machine: LocalMachine, containers: ContainerChoice) -> list[Problem]:
    """GPUs that exist, and that no container can be given."""
    asking = any(role.image and role.resources.gpus.count for role in job.roles)
    real = [gpu for gpu in machine.gpus if not gpu.is_stated]
    if containers.program is None or not asking or all(device_of(gpu, containers.devices) for gpu in real):
        return []
    reason = "its GPUs cannot be given to a container, for no CDI specification of this machine names them all"
    return [(reason, f"`{GENERATE}`, or run it without the image: `--set image=null`")]


def _kind_problems(asking: list[Role], machine: LocalMachine) -> list[Problem]:
    """There are enough GPUs, but not of the kinds asked for."""
    parts = []
    for role in asking:
        wanted = role.resources.gpus
        fitting = sum(matches(gpu, wanted) for gpu in machine.gpus)
        parts.append(f"{role.nodes * wanted.count} x {gpu_words(wanted)} (there are {fitting})")
    return [("it asks for " + " and ".join(parts), "nearest that fits: fewer GPUs of that kind, or of any kind")]


def _nearest_gpus(asking: list[Role], have: int) -> str:
    if have == 0:
        return "nearest that fits: `gpus: 0` (LONGBOAT_GPUS=id,id states GPUs that NVML does not show)"
    if len(asking) == 1:
        role = asking[0]
        each = role.resources.gpus.count
        if each <= have:
            return f"nearest that fits: `nodes: {have // each}` with `gpus: {each}` each"
        return f"nearest that fits: `nodes: 1` with `gpus: {have}`"
    return f"nearest that fits: at most {counted(have, 'GPU')} over all roles"


def _size_problems(job: Job, machine: LocalMachine) -> list[Problem]:
    problems: list[Problem] = []
    request = request_of(job)
    nodes = max(1, job.nodes)
    over = f"over {nodes} nodes" if nodes > 1 else "for its node"
    if request.cpus > machine.cpus:
        reason = f"it asks for {counted(request.cpus, 'CPU')} {over} and there are {machine.cpus:g}"
        problems.append((reason, f"nearest that fits: `cpus: {_floor(machine.cpus / nodes)}` per node"))
    if request.memory > machine.memory:
        asked, have = show_quantity(request.memory), show_quantity(machine.memory)
        reason = f"it asks for {asked} of memory {over} and there are {have}"
        problems.append((reason, f"nearest that fits: `memory: {machine.memory // nodes >> 20}Mi` per node"))
    for role in job.roles:
        wanted = role.resources
        problems.extend(_space_problem(role.name, "shm", wanted.shm, machine.shm))
        problems.extend(_space_problem(role.name, "disk", wanted.disk, machine.disk))
    return problems


def _space_problem(role: str, name: str, asked: int | None, have: int | None) -> list[Problem]:
    if asked is None or have is None or asked <= have:
        return []
    reason = f"role {role} asks for {show_quantity(asked)} of {name} and there are {show_quantity(have)}"
    return [(reason, f"nearest that fits: `{name}: {have >> 20}Mi`")]


def _floor(value: float) -> str:
    return f"{int(value * 100) / 100:g}"


def _crowd_notices(job: Job, machine: LocalMachine) -> list[str]:
    """Many ranks on few CPUs: told before they start."""
    if job.ranks <= CROWD * machine.cpus:
        return []
    start_s = (job.ranks + job.nodes) * START_S / machine.cpus
    slow = f", and starting them takes about {format_duration(round(start_s))}" if start_s >= SLOW_START_S else ""
    return [f"{counted(job.ranks, 'rank')} share {counted(machine.cpus, 'CPU')} here{slow}"]


def _image_notices(job: Job, containers: ContainerChoice) -> list[str]:
    images = sorted({role.image for role in job.roles if role.image})
    if not images or containers.program is not None:
        return []
    why = f" ({containers.why_not})" if containers.why_not else ""
    return [f"image {', '.join(images)}: not used here{why}, the job runs in this machine's own environment"]
