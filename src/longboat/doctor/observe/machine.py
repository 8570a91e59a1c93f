"""This machine as the doctor sees it: Python, home, disk, git, GPUs, what runs containers."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping

from longboat.core.errors import LongboatError
from longboat.doctor.values import ContainerProgram, MachineFacts
from longboat.engines.local.queue.machine import LocalMachine, observe_machine
from longboat.engines.local.settings import LocalSettings
from longboat.engines.local.supervise.processes import boot_id
from longboat.engines.shared.home import Home


def machine_facts(
    home: Home,
    environment: Mapping[str, str],
    settings: LocalSettings = LocalSettings(),  # noqa: B008
) -> MachineFacts:
    from longboat.engines.local.queue.gpu_isolation import device_files, find_problem

    machine = observe_machine(home.root, environment)
    error, hint, runs = _try_home(home)
    path = environment.get("PATH", os.defpath)
    devices = list(device_files().values())
    is_isolated = bool(devices) and settings.gpu_isolation != "off"
    return MachineFacts(
        machine=machine,
        python=".".join(map(str, sys.version_info[:3])),
        executable=sys.executable,
        home=str(home.root),
        home_error=error,
        home_hint=hint,
        runs=runs,
        trainer_python=shutil.which("python", path=path) or shutil.which("python3", path=path),
        git=shutil.which("git", path=path),
        has_loopbacks=_has_loopbacks(),
        has_processes=boot_id() is not None,
        gpu_devices=len(devices),
        isolation=settings.gpu_isolation,
        isolation_problem=find_problem(devices) if is_isolated else None,
        containers=_containers(settings.containers, machine, environment),
    )


def _try_home(home: Home) -> tuple[str, str | None, int]:
    """Why it cannot be written, a hint, and how many runs are in it."""
    try:
        home.prepare()
        probe = home.root / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
        return "", None, len(home.run_names())
    except LongboatError as error:
        return error.message, error.hint, 0
    except OSError as error:
        return f"{home.root}: {error.strerror}", "set LONGBOAT_HOME", 0


def _has_loopbacks() -> bool:
    """Linux answers on all of 127.0.0.0/8, other systems on one address only."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
    except OSError:
        return False
    return True


def _containers(setting: str, machine: LocalMachine, environment: Mapping[str, str]) -> ContainerProgram:
    """Which program runs a job's image, and whether it can be given the GPUs."""
    from longboat.engines.local.containers.choice import device_of
    from longboat.engines.local.containers.program import answer, choose, last_line

    try:
        choice = choose(setting, environment)
    except LongboatError as error:
        return ContainerProgram(error=error.message, hint=error.hint)
    if choice.program is None:
        return ContainerProgram(why_not=str(choice.why_not))
    version = answer(choice.program, ["version", "--format", "{{.Client.Version}}"], environment)
    if version.returncode:
        reason = f"{choice.program} does not work: {last_line(version.stderr)}"
        return ContainerProgram(program=choice.program, error=reason)
    real = [gpu for gpu in machine.gpus if not gpu.is_stated]
    unnamed = sum(device_of(gpu, choice.devices) is None for gpu in real)
    return ContainerProgram(program=choice.program, version=version.stdout.strip(), unnamed_gpus=unnamed)
