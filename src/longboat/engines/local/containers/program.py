"""The program that runs containers, podman or docker: which one is used, and its containers of a run.

Both understand the commands used here; where they differ is said in place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from longboat.core.errors import EngineError, Refused
from longboat.engines.local.containers.choice import ContainerChoice

PROGRAMS = ("podman", "docker")
"""In the order of preference: podman needs no daemon, and what it starts belongs to the user."""
RUN_LABEL, UID_LABEL = "longboat.dev/run", "longboat.dev/uid"
ANSWER_S = 60.0
"""Each answers within a second; a machine under heavy load, or a daemon that is just starting, takes longer."""
OFF = "`longboat config set local.containers off` runs jobs without their image"


def choose(setting: str, environment: Mapping[str, str]) -> ContainerChoice:
    """The program that the setting `local.containers` chooses. Raises Refused where it cannot be used."""
    if setting == "off":
        return ContainerChoice(why_not="`local.containers` is off")
    if not sys.platform.startswith("linux"):
        return ContainerChoice(why_not="containers are used on Linux only")
    problems = []
    for name in PROGRAMS if setting == "auto" else (setting,):
        problem = problem_of(name, environment)
        if problem is None:
            from longboat.engines.local.containers.cdi import device_names

            return ContainerChoice(program=name, devices=device_names())
        problems.append(problem)
    if setting != "auto":
        raise Refused(f"`local.containers` is {setting}: {problems[0]}", hint=OFF)
    return ContainerChoice(why_not=", ".join(problems))


def problem_of(name: str, environment: Mapping[str, str]) -> str | None:
    """Why this program cannot be used; None where it can."""
    path = environment.get("PATH", os.defpath)
    if shutil.which(name, path=path) is None:
        return f"no {name} here"
    if name == "podman":
        return None
    if not environment.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return "docker's daemon is another machine (DOCKER_HOST)"
    return None if answer(name, ["info"], environment).returncode == 0 else "docker's daemon does not answer"


def program_path(name: str, environment: Mapping[str, str]) -> str:
    path = shutil.which(name, path=environment.get("PATH", os.defpath))
    if path is None:
        raise EngineError(f"{name} is not on PATH any more", hint="install it, or submit the job again")
    return path


def answer(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """One short command. A program that is gone, or hangs, has failed like any other."""
    try:
        command = [program_path(name, environment), *arguments]
        return subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, EngineError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess([name, *arguments], 125, "", str(error))


def remove_containers(name: str, uid: str, environment: Mapping[str, str]) -> None:
    """No container of this run is left, whatever state it is in."""
    listed = answer(name, ["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={UID_LABEL}={uid}"], environment)
    ids = listed.stdout.split()
    if listed.returncode:
        print(f"{name} does not list its containers: {last_line(listed.stderr)}", file=sys.stderr)
    if ids:
        at_once = ["--time", "0"] if name == "podman" else []  # its processes had their grace; podman would wait again
        answer(name, ["rm", "--force", *at_once, *ids], environment)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ") if lines else "no reason was given"
