"""The framework that a command belongs to, and who starts its processes. Pure: text in, answer out.

It reads a command and the text of a script; it opens no file, runs nothing and expands no variable. A command it cannot
read is nobody's: framework `none`, started by Longboat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from longboat.core.commands import python_module, simple_commands, word_name
from longboat.core.jobs import Command, Framework, Job

Launched = Literal["longboat", "torchrun", "mpirun"]

TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torchrun")
MPIRUN_PROGRAMS = ("mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpiexec.openmpi", "mpirun.openmpi")
FOREIGN_LAUNCHERS = ("accelerate", "deepspeed", "horovodrun", "composer", "srun")
"""Programs that start ranks of their own and that Longboat does not steer."""

TENSORFLOW_ROLES = ("ps", "chief")
SCRIPT_LIMIT = 1_000_000
"""Characters of a script that are read; imports stand at the top."""

_SPOKEN: tuple[tuple[str, Framework], ...] = (
    ("horovod", "mpi"),
    ("torch.distributed", "torch"),
    ("jax.distributed", "jax"),
    ("tensorflow.distribute", "tensorflow"),
    ("mpi4py", "mpi"),
)
"""Modules that settle the matter: they are about several processes. The first one found counts."""

_IMPORTED: tuple[tuple[str, Framework], ...] = (
    ("jax", "jax"),  # before torch and tensorflow: a jax script often loads its data with one of them
    ("flax", "jax"),
    ("torch", "torch"),
    ("lightning", "torch"),
    ("pytorch_lightning", "torch"),
    ("accelerate", "torch"),
    ("deepspeed", "torch"),
    ("transformers", "torch"),
    ("tensorflow", "tensorflow"),
    ("tf_keras", "tensorflow"),
)


class TorchrunShape(NamedTuple):
    """What a torchrun command line says about its own size; None where it leaves it to the environment."""

    nodes: str | None
    procs: str | None


def guess_framework(command: Command, roles: Sequence[str], script: str | None) -> tuple[Framework, str]:
    """The framework of a job and the reason, as shown by `--dry-run`; `script` is the text of `script_of(command)`."""
    for words in simple_commands(command):
        name = word_name(words[0])
        if _is_torchrun(words):
            return "torch", f"the command is {_spelled(words)}"
        if name in MPIRUN_PROGRAMS or name == "horovodrun":
            return "mpi", f"the command is {name}"
        if name in ("accelerate", "deepspeed", "composer"):
            return "torch", f"the command is {name}"
    for role in roles:
        if role in TENSORFLOW_ROLES:
            return "tensorflow", f"there is a role {role}"
    if script is not None:
        guess = _framework_of_script(script)
        if guess is not None:
            framework, module = guess
            return framework, f"{script_of(command) or 'the script'} imports {module}"
    return "none", "neither the command nor the script names a framework"


def starter_of(framework: Framework, command: Command) -> Launched:
    """Who starts the ranks: a torchrun or mpirun on the command line, mpirun for framework mpi, else Longboat."""
    for words in simple_commands(command):
        if _is_torchrun(words):
            return "torchrun"
        if word_name(words[0]) in MPIRUN_PROGRAMS:
            return "mpirun"
    return "mpirun" if framework == "mpi" else "longboat"


def names_mpirun(command: Command) -> bool:
    """Whether the command calls mpirun itself."""
    return any(word_name(words[0]) in MPIRUN_PROGRAMS for words in simple_commands(command))


def mpirun_processes(command: Command) -> int | None:
    """How many processes a command's own mpirun starts, `-np 2 a : -np 1 b` together; None: it does not say."""
    for words in simple_commands(command):
        if word_name(words[0]) in MPIRUN_PROGRAMS:
            starts = [place for place, word in enumerate(words) if place == 0 or word == ":"]
            parts = [words[start:end] for start, end in zip(starts, [*starts[1:], len(words)])]
            counts = [_flag(part, ("-np", "-n", "--np", "-c")) for part in parts]
            known = [int(count) for count in counts if count is not None and count.isdecimal()]
            return sum(known) if len(known) == len(parts) else None
    return None


def script_of(command: Command) -> str | None:
    """The Python file a command runs, relative to where it runs: its first `*.py` word, or the file of `python -m`."""
    for words in simple_commands(command):
        for word in words:
            if word.endswith(".py") and not word.startswith("-"):
                return word
        module = python_module(words)
        if module is not None and module not in TORCHRUN_MODULES:
            return module.replace(".", "/") + ".py"
    return None


def torchrun_shape(command: Command) -> TorchrunShape | None:
    """What a torchrun command line itself says about nodes and processes per node; None if it is no torchrun."""
    for words in simple_commands(command):
        if _is_torchrun(words):
            nodes = _flag(words, ("--nnodes",))
            if nodes is None and "--standalone" in words:
                nodes = "1"
            return TorchrunShape(nodes, _flag(words, ("--nproc-per-node", "--nproc_per_node")))
    return None


def command_notices(job: Job) -> tuple[str, ...]:
    """Where a command contradicts the job's numbers, or will not work as the user expects; one line each."""
    notices = [text for role in job.roles for text in _role_notices(job, role.name)]
    tasks = job.ranks
    if job.framework == "tensorflow" and tasks > 1:
        if not any("TF_USE_LEGACY_KERAS" in role.env for role in job.roles):
            notices.append(
                "Keras 3 does not train with MultiWorkerMirroredStrategy or ParameterServerStrategy: a script that "
                'uses it needs the package tf-keras and `env: {TF_USE_LEGACY_KERAS: "1"}`'
            )
    return tuple(dict.fromkeys(notices))


def _role_notices(job: Job, name: str) -> Iterator[str]:
    role = job.role(name)
    shape = torchrun_shape(role.run)
    if shape is not None:
        nodes = sum(other.nodes for other in job.roles if torchrun_shape(other.run) is not None)
        for flag, said, count, field in (
            ("--nnodes", shape.nodes, nodes, "nodes"),
            ("--nproc-per-node", shape.procs, role.procs, "procs"),
        ):
            if said is not None and said.isdecimal() and int(said) != count:
                yield (
                    f"role {name}: the command says {flag} {said} but the job has {field}: {count}; "
                    "torchrun follows the command"
                )
    for words in simple_commands(role.run):
        program = word_name(words[0])
        if program in FOREIGN_LAUNCHERS:
            yield (
                f"role {name}: {program} starts processes of its own and knows nothing of the other nodes; "
                "`torchrun script.py` or `python script.py` lets Longboat place the ranks"
            )
        if program in MPIRUN_PROGRAMS:
            world = job.ranks
            processes = mpirun_processes(role.run)
            if processes is not None and processes != world and job.nodes > 1:
                yield (
                    f"role {name}: the command says {processes} processes but nodes x procs is {world}; "
                    "mpirun follows the command"
                )


def _is_torchrun(words: Sequence[str]) -> bool:
    return word_name(words[0]) == "torchrun" or python_module(words) in TORCHRUN_MODULES


def _spelled(words: Sequence[str]) -> str:
    module = python_module(words)
    return f"python -m {module}" if module is not None else word_name(words[0])


def _flag(words: Sequence[str], names: Sequence[str]) -> str | None:
    for position, word in enumerate(words[1:], start=1):
        flag, equals, value = word.partition("=")
        if flag in names:
            if equals:
                return value
            return words[position + 1] if position + 1 < len(words) else None
        if word.endswith(".py"):
            return None  # what follows are the script's own arguments
    return None


def _framework_of_script(script: str) -> tuple[Framework, str] | None:
    modules = _modules(script[:SCRIPT_LIMIT])
    for table in (_SPOKEN, _IMPORTED):
        for module, framework in table:
            if any(name == module or name.startswith(module + ".") for name in modules):
                return framework, module
    return None


def _modules(script: str) -> set[str]:
    """Dotted names the script imports, and what it reaches through them (`tf.distribute` as tensorflow.distribute)."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _modules_of_lines(script)
    names: set[str] = set()
    bound: dict[str, str] = {}
    reached: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names.add(alias.name)
                bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
            names.add(node.module)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            reached.append((node.value.id, node.attr))
    names.update(f"{bound[name]}.{attribute}" for name, attribute in reached if name in bound)
    return names


def _modules_of_lines(script: str) -> set[str]:
    return set(re.findall(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][\w.]*)", script, re.MULTILINE))
