"""The checks of `longboat doctor` for this machine: what the embedded engine needs. Observes only."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping

from longboat.core.errors import LongboatError
from longboat.core.plans import DoctorCheck
from longboat.core.resources import show_quantity
from longboat.core.words import counted
from longboat.engines.local.queue.machine import LocalMachine, observe_machine
from longboat.engines.local.settings import Isolation, LocalSettings
from longboat.engines.local.supervise.processes import boot_id
from longboat.engines.shared.home import Home

LOW_DISK = 1 << 30  # one checkpoint of a small model


def examine(
    home: Home,
    environment: Mapping[str, str],
    settings: LocalSettings = LocalSettings(),  # noqa: B008
) -> list[DoctorCheck]:
    machine = observe_machine(home.root, environment)
    return [
        _python(),
        _home(home),
        _disk(machine),
        _rank_python(environment),
        _git(environment),
        _loopback(),
        _processes(),
        _gpus(machine),
        _gpu_isolation(settings.gpu_isolation),
        _containers(settings.containers, machine, environment),
        DoctorCheck(
            name="machine", ok=True, detail=f"{counted(machine.cpus, 'CPU')}, {show_quantity(machine.memory)} of memory"
        ),
    ]


def _python() -> DoctorCheck:
    version = ".".join(map(str, sys.version_info[:3]))
    return DoctorCheck(name="python", ok=True, detail=f"{version} at {sys.executable}")


def _home(home: Home) -> DoctorCheck:
    try:
        home.prepare()
        probe = home.root / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except LongboatError as error:
        return DoctorCheck(name="home", ok=False, detail=error.message, hint=error.hint)
    except OSError as error:
        return DoctorCheck(name="home", ok=False, detail=f"{home.root}: {error.strerror}", hint="set LONGBOAT_HOME")
    return DoctorCheck(name="home", ok=True, detail=f"{home.root}, {counted(len(home.run_names()), 'run')}")


def _disk(machine: LocalMachine) -> DoctorCheck:
    low = machine.disk < LOW_DISK
    hint = "`longboat rm` old runs, or point LONGBOAT_HOME to another disk" if low else None
    return DoctorCheck(name="disk", ok=not low, detail=f"{show_quantity(machine.disk)} free", hint=hint)


def _rank_python(environment: Mapping[str, str]) -> DoctorCheck:
    path = environment.get("PATH", os.defpath)
    python = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if python is None:
        return DoctorCheck(
            name="trainer's python",
            ok=None,
            detail="no python on PATH",
            hint="install python3, or activate an environment",
        )
    return DoctorCheck(name="trainer's python", ok=True, detail=python)


def _git(environment: Mapping[str, str]) -> DoctorCheck:
    git = shutil.which("git", path=environment.get("PATH", os.defpath))
    if git is None:
        return DoctorCheck(
            name="git",
            ok=None,
            detail="not found: all files of a folder travel, .gitignore is not read",
            hint="install git",
        )
    return DoctorCheck(name="git", ok=True, detail=git)


def _loopback() -> DoctorCheck:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
    except OSError:
        return DoctorCheck(name="loopback", ok=None, detail="only 127.0.0.1: all nodes of a run share one address")
    return DoctorCheck(name="loopback", ok=True, detail="every node has an address of its own (127.0.0.x)")


def _processes() -> DoctorCheck:
    if boot_id() is None:
        return DoctorCheck(
            name="processes", ok=None, detail="no /proc: stray processes of a killed run cannot be found"
        )
    return DoctorCheck(
        name="processes", ok=True, detail="/proc is readable: strays of a killed run are found and ended"
    )


def _gpus(machine: LocalMachine) -> DoctorCheck:
    if not machine.gpus:
        return DoctorCheck(
            name="gpus", ok=None, detail="none found", hint="LONGBOAT_GPUS=id,id states GPUs that NVML does not show"
        )
    kinds = ", ".join(f"{gpu.index}: {gpu.type or gpu.id}" for gpu in machine.gpus)
    return DoctorCheck(name="gpus", ok=True, detail=f"{len(machine.gpus)} ({kinds})")


def _gpu_isolation(setting: Isolation) -> DoctorCheck:
    """Whether a run reaches no more GPUs than it was given, whatever CUDA_VISIBLE_DEVICES says."""
    from longboat.engines.local.queue.gpu_isolation import device_files, find_problem

    name, devices = "gpu isolation", list(device_files().values())
    if not devices:
        return DoctorCheck(name=name, ok=True, detail="nothing to isolate: there are no device files of NVIDIA GPUs")
    if setting == "off":
        hint = "`longboat config unset local.gpu_isolation`"
        return DoctorCheck(name=name, ok=None, detail="off: CUDA_VISIBLE_DEVICES alone keeps runs apart", hint=hint)
    problem = find_problem(devices)
    if problem is None:
        detail = "enforced: a run can open the device files of its own GPUs only"
        return DoctorCheck(name=name, ok=True, detail=detail)
    detail = f"not enforced: {problem.reason}"
    return DoctorCheck(name=name, ok=False if setting == "required" else None, detail=detail, hint=problem.hint)


def _containers(setting: str, machine: LocalMachine, environment: Mapping[str, str]) -> DoctorCheck:
    """Which program runs a job's image, and whether it can be given the GPUs."""
    from longboat.engines.local.containers.choice import GENERATE, device_of
    from longboat.engines.local.containers.program import answer, choose, last_line

    try:
        choice = choose(setting, environment)
    except LongboatError as error:
        return DoctorCheck(name="containers", ok=False, detail=error.message, hint=error.hint)
    if choice.program is None:
        detail = f"{choice.why_not}: jobs run without their `image`"
        return DoctorCheck(
            name="containers", ok=None, detail=detail, hint=None if setting == "off" else "install podman"
        )
    version = answer(choice.program, ["version", "--format", "{{.Client.Version}}"], environment)
    if version.returncode:
        return DoctorCheck(
            name="containers", ok=False, detail=f"{choice.program} does not work: {last_line(version.stderr)}"
        )
    shown = f"{choice.program} {version.stdout.strip()} runs the `image` of jobs"
    real = [gpu for gpu in machine.gpus if not gpu.is_stated]
    without = [gpu for gpu in real if device_of(gpu, choice.devices) is None]
    if without:
        detail = f"{shown}; no CDI specification names its GPUs"
        return DoctorCheck(name="containers", ok=None, detail=detail, hint=GENERATE)
    return DoctorCheck(name="containers", ok=True, detail=f"{shown}; GPUs by CDI" if real else shown)
