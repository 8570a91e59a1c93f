"""`exec` in a container: a command beside the ranks, in their image, on the caller's terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from longboat.core.errors import NotFound
from longboat.engines.local.containers.command import container_name, exec_command
from longboat.engines.local.containers.program import answer, program_path
from longboat.engines.local.records import LocalRecord

MISSING = 44
HAS_PROGRAM = f"import shutil, sys; sys.exit(0 if shutil.which(sys.argv[1]) else {MISSING})"
"""An exit code of 127 would not tell a command that is not there from one that ends so."""
_OWN = ("PATH", "HOME", "TMPDIR")
_OWN_PREFIXES = ("LD_", "XDG_", "DOCKER_", "CONTAINER_", "CONTAINERS_", "STORAGE_", "_CONTAINERS_")
"""What podman and docker themselves go by: with a run's values they would find other programs and containers."""


def enter(
    record: LocalRecord,
    plan: Mapping[str, Any],
    command: Sequence[str],
    *,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
) -> int:
    """Run a command in the container; its exit code. Raises NotFound when the container has ended."""
    program = record.containers
    assert program is not None
    name = container_name(record.name, record.uid, int(plan["attempt"]), str(plan["node"]))
    state = answer(program, ["container", "inspect", "--format", "{{.State.Running}}", name], environment)
    if state.stdout.strip() != "true":
        raise NotFound(
            f"the container of {plan['node']} does not run", hint="`longboat cp` copies files of the working copy"
        )
    looking = ["exec", f"--workdir={plan['workdir']}", name, "python3", "-I", "-S", "-c", HAS_PROGRAM, command[0]]
    if answer(program, looking, environment).returncode == MISSING:
        raise NotFound(f"{command[0]}: command not found in the container of {plan['node']}")
    options, given = variable_options(variables, [secret.name for secret in record.job.secrets])
    entering = exec_command(
        program_path(program, environment),
        name,
        workdir=str(plan["workdir"]),
        variables=options,
        command=command,
        is_terminal=sys.stdin.isatty() and sys.stdout.isatty(),
    )
    ended = subprocess.run(entering, env={**environment, **given}, check=False)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


def variable_options(variables: Mapping[str, str], secrets: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """Options `--env` for the variables, and those whose values are passed in the program's own environment.

    There no list of processes shows them. Only what the program itself would go by is told with its value, and of a
    secret not even that.
    """
    plain = {name for name in variables if (name in _OWN or name.startswith(_OWN_PREFIXES)) and name not in secrets}
    options = [f"{name}={value}" if name in plain else name for name, value in sorted(variables.items())]
    return options, {name: value for name, value in variables.items() if name not in plain}
