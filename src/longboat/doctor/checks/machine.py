"""Checks of this machine, for the embedded engine. Pure."""

from __future__ import annotations

from longboat.core.resources import show_quantity
from longboat.core.words import counted
from longboat.doctor.facts import MACHINE, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning

LOW_DISK = 1 << 30  # one checkpoint of a small model
LOW_SHM = 256 << 20
"""A data loader of PyTorch passes batches through it; 64 MiB, which containers get, end in bus errors."""


def python(seen: Seen) -> Judgement:
    return ok(f"{seen[MACHINE].python} at {seen[MACHINE].executable}")


def home(seen: Seen) -> Judgement:
    facts = seen[MACHINE]
    if facts.home_error:
        return broken(facts.home_error, facts.home_hint or "set LONGBOAT_HOME to a folder that you may write")
    return ok(f"{facts.home}, {counted(facts.runs, 'run')}")


def disk(seen: Seen) -> Judgement:
    free = seen[MACHINE].machine.disk
    if free < LOW_DISK:
        hint = "`longboat rm` old runs, or point LONGBOAT_HOME to another disk"
        return broken(f"{show_quantity(free)} free", hint)
    return ok(f"{show_quantity(free)} free")


def trainer_python(seen: Seen) -> Judgement:
    path = seen[MACHINE].trainer_python
    return ok(path) if path else warning("no python on PATH", "install python3, or activate an environment")


def git(seen: Seen) -> Judgement:
    path = seen[MACHINE].git
    if path:
        return ok(path)
    return warning("not found: all files of a folder travel, .gitignore is not read", "install git")


def loopback(seen: Seen) -> Judgement:
    if seen[MACHINE].has_loopbacks:
        return ok("every node has an address of its own (127.0.0.x)")
    return ok("only 127.0.0.1: all nodes of a run share one address")


def processes(seen: Seen) -> Judgement:
    if seen[MACHINE].has_processes:
        return ok("/proc is readable: strays of a killed run are found and ended")
    return warning("no /proc: stray processes of a killed run cannot be found", "end them by hand, or use Linux")


def shared_memory(seen: Seen) -> Judgement:
    size = seen[MACHINE].machine.shm
    if size is None:
        return ok("no /dev/shm on this system")
    if size < LOW_SHM:
        hint = "data loaders need more: mount -o remount,size=8G /dev/shm, or `docker run --shm-size 8g`"
        return warning(f"/dev/shm has {show_quantity(size)}", hint)
    return ok(f"/dev/shm has {show_quantity(size)}")


def gpus(seen: Seen) -> Judgement:
    facts = seen[MACHINE]
    if facts.machine.gpus:
        kinds = ", ".join(f"{gpu.index}: {gpu.type or gpu.id}" for gpu in facts.machine.gpus)
        return ok(f"{len(facts.machine.gpus)} ({kinds})")
    if facts.gpu_devices:
        hint = "is the driver's library there? nvidia-smi; LONGBOAT_GPUS=id,id states GPUs that NVML does not show"
        return broken(f"{counted(facts.gpu_devices, 'device file')} of NVIDIA GPUs, and NVML shows none", hint)
    return ok("none; LONGBOAT_GPUS=id,id states GPUs that NVML does not show")


def gpu_isolation(seen: Seen) -> Judgement:
    """Whether a run reaches no more GPUs than it was given, whatever CUDA_VISIBLE_DEVICES says."""
    facts = seen[MACHINE]
    if not facts.gpu_devices:
        return ok("nothing to isolate: there are no device files of NVIDIA GPUs")
    if facts.isolation == "off":
        hint = "`longboat config unset local.gpu_isolation`"
        return warning("off: CUDA_VISIBLE_DEVICES alone keeps runs apart", hint)
    problem = facts.isolation_problem
    if problem is None:
        return ok("enforced: a run can open the device files of its own GPUs only")
    report = broken if facts.isolation == "required" else warning
    return report(f"not enforced: {problem.reason}", problem.hint)


def containers(seen: Seen) -> Judgement:
    program = seen[MACHINE].containers
    if program.error:
        return broken(program.error, program.hint or "does it work on its own? `podman info`, `docker info`")
    if not program.program and not program.why_not:
        return skipped("what runs containers was not looked at")
    if not program.program:
        return ok(f"{program.why_not}: jobs run without their `image`")
    shown = f"{program.program} {program.version} runs the `image` of jobs"
    if program.unnamed_gpus:
        from longboat.engines.local.containers.choice import GENERATE

        return warning(f"{shown}; no CDI specification names its GPUs", GENERATE)
    return ok(shown)


def size(seen: Seen) -> Judgement:
    machine = seen[MACHINE].machine
    if not machine.cpus or not machine.memory:
        return skipped("CPUs and memory could not be counted")
    return ok(f"{counted(machine.cpus, 'CPU')}, {show_quantity(machine.memory)} of memory")


CHECKS = (
    Check("python", "machine", "the Python that Longboat runs with", python),
    Check("home", "machine", "LONGBOAT_HOME can be made and written", home),
    Check("disk", "machine", "there is room for runs and checkpoints", disk),
    Check("trainer's python", "machine", "a `python` on PATH for the ranks", trainer_python),
    Check("git", "machine", "git, so that ignored files do not travel", git),
    Check("loopback", "machine", "an address of its own for every node of a run", loopback),
    Check("processes", "machine", "/proc, to find processes that a killed run left", processes),
    Check("shared memory", "machine", "/dev/shm is large enough for data loaders", shared_memory),
    Check("gpus", "machine", "GPUs that NVML shows match the device files", gpus),
    Check("gpu isolation", "machine", "a run can open only its own GPUs", gpu_isolation),
    Check("containers", "machine", "podman or docker for jobs with an `image`, GPUs by CDI", containers),
    Check("machine", "machine", "CPUs and memory", size),
)
